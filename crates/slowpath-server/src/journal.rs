// SPDX-License-Identifier: Apache-2.0
//! Lines for the operator.

/// Takes lines for the operator: what happened, and what someone has to look at.
pub trait Journal: Send + Sync {
    /// Something happened.
    fn say(&self, text: &str);

    /// Something has to be looked at.
    fn warn(&self, text: &str);
}
