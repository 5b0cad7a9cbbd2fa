// SPDX-License-Identifier: Apache-2.0
//! Whole networks against closed forms, published measurements and their own accounts.

mod accounting;
mod bbr;
mod cubic;
mod dctcp;
mod dumbbell;
mod fairness;
mod flowlets;
mod lines;
mod measured;
mod pfc;
mod pipe;
mod scene;
mod waiting;
