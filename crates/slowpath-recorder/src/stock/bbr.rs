// SPDX-License-Identifier: Apache-2.0
//! What BBR draws by lot: the first phase of a cycle of eight, whenever it begins to probe for bandwidth (`bbr_reset_probe_bw_mode`, which
//! takes the drawn number from 7 and goes one phase on).

/// `phase()` of the probe's ring.bpf.h; 0: another congestion control.
#[derive(Clone, Copy, Default)]
pub(super) struct Phase(pub(super) u32);

impl Phase {
    /// `BBR_PROBE_BW`.
    const PROBING: u32 = 2;
    const PHASES: u32 = 8;

    fn probes(self) -> bool {
        self.0 & 7 == Phase::PROBING
    }

    /// By the bandwidth that a policer was found to leave; when that is over another cycle begins.
    fn limited(self) -> bool {
        self.0 & 8 != 0
    }

    /// What was drawn between the two, 0 to 6.
    pub(super) fn drawn(self, before: Phase) -> Option<u32> {
        let again = before.limited() && !self.limited();
        let began = self.probes() && (!before.probes() || again);
        let place = self.0 >> 4 & (Phase::PHASES - 1);
        began.then_some((Phase::PHASES - place) % Phase::PHASES)
    }
}

#[cfg(test)]
mod tests {
    use super::Phase;

    fn phase(mode: u32, limited: u32, place: u32) -> Phase {
        Phase(1 << 31 | mode | limited << 3 | place << 4)
    }

    #[test]
    fn a_cycle_that_begins_was_drawn() {
        // CYCLE_LEN - 1 - drawn, and one on: 0 draws 7, which becomes 0; 6 draws 1, which becomes 2.
        assert_eq!(phase(2, 0, 0).drawn(phase(1, 0, 0)), Some(0));
        assert_eq!(phase(2, 0, 7).drawn(phase(0, 0, 0)), Some(1));
        assert_eq!(phase(2, 0, 2).drawn(phase(3, 0, 5)), Some(6));
        assert_eq!(phase(2, 0, 4).drawn(phase(2, 1, 4)), Some(4));
    }

    #[test]
    fn what_goes_on_was_not() {
        assert_eq!(phase(2, 0, 3).drawn(phase(2, 0, 2)), None);
        assert_eq!(phase(2, 1, 3).drawn(phase(2, 0, 2)), None);
        assert_eq!(phase(3, 0, 3).drawn(phase(2, 0, 3)), None);
        assert_eq!(phase(0, 0, 0).drawn(Phase::default()), None);
        assert_eq!(Phase::default().drawn(Phase::default()), None);
    }
}
