// SPDX-License-Identifier: Apache-2.0
//! A server and its agents over real sockets, with certificates made here and a clock that is set.

mod client;
mod hostile;
mod identity;
mod limits;
mod operator;
mod setting;
