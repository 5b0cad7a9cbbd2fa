// SPDX-License-Identifier: Apache-2.0
//! Which recorder made a recording.

/// The recorder of a recording, by the name that its file has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecorderKind {
    /// The laboratory kernel itself: every decision, exact, and one clock for both ends.
    Laboratory,
    /// BPF at TCP's functions of a stock kernel: every decision, exact.
    Bpf,
    /// BPF at tracepoints only: the light recorder, whose runs are inferred.
    Tracepoints,
    /// A recorder that this version does not know.
    Unknown(String),
}

impl RecorderKind {
    /// Its name in files and JSON.
    pub fn name(&self) -> &str {
        match self {
            RecorderKind::Laboratory => "laboratory",
            RecorderKind::Bpf => "bpf",
            RecorderKind::Tracepoints => "tracepoints",
            RecorderKind::Unknown(name) => name,
        }
    }
}

impl Default for RecorderKind {
    fn default() -> Self {
        RecorderKind::Unknown(String::new())
    }
}

impl From<String> for RecorderKind {
    fn from(name: String) -> Self {
        let known = [
            RecorderKind::Laboratory,
            RecorderKind::Bpf,
            RecorderKind::Tracepoints,
        ];
        let known = known.into_iter().find(|it| it.name() == name);
        known.unwrap_or(RecorderKind::Unknown(name))
    }
}

impl From<&str> for RecorderKind {
    fn from(name: &str) -> Self {
        RecorderKind::from(name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_whether_it_is_known_or_not() {
        for name in ["laboratory", "bpf", "tracepoints", "", "later"] {
            assert_eq!(RecorderKind::from(name).name(), name);
        }
        assert_eq!(RecorderKind::from("bpf"), RecorderKind::Bpf);
    }
}
