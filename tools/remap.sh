# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# To be sourced by what builds for other machines: no path of this one in the program, so that
# two clones build the same bytes.
cargo_home=${CARGO_HOME:-$HOME/.cargo}
export RUSTFLAGS="${RUSTFLAGS-} --remap-path-prefix=$PWD=. --remap-path-prefix=$cargo_home=cargo"
export CFLAGS="${CFLAGS-} -ffile-prefix-map=$PWD=. -ffile-prefix-map=$cargo_home=cargo"
