// SPDX-License-Identifier: Apache-2.0
//! What a line does to packets by length, rate and marks: the decisions. The meter, dropper and
//! marker of a traffic conditioner (RFC 2475 section 2.3.3), and an MTU.

use super::plan::{Condition, Mtu, Remark};
use crate::bucket::TokenBucket;
use crate::packet::Header;
use crate::time::Time;

/// What a line has done by its [`Condition`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConditionCounters {
    /// Packets dropped as they were longer than its MTU; never on the line.
    pub too_long: u64,
    /// Packets made into fragments as they were longer; never on the line.
    pub fragmented: u64,
    /// Fragments of these.
    pub fragments: u64,
    /// Packets that its policer dropped.
    pub policed: u64,
    /// Packets whose ECN field it cleared; those without ECN do not count.
    pub ecn_cleared: u64,
    /// Packets to which it gave another DSCP.
    pub dscp_set: u64,
}

/// A line's conditions and their state.
#[derive(Clone, Debug, Default)]
pub(super) struct Conditioner {
    pub mtu: Option<Mtu>,
    police: Option<TokenBucket>,
    clear_ecn: bool,
    remark: Option<Remark>,
    pub counters: ConditionCounters,
}

impl Conditioner {
    pub fn change(&mut self, now: Time, condition: Condition) {
        match condition {
            Condition::Mtu(mtu) => self.mtu = mtu,
            Condition::Police(police) => {
                self.police = police.map(|police| {
                    let bits = police.burst.saturating_mul(8);
                    TokenBucket::new(police.rate.bits_per_second(), bits, now)
                });
            }
            Condition::ClearEcn(clear) => self.clear_ecn = clear,
            Condition::Dscp(remark) => self.remark = remark,
        }
    }

    /// Whether the policer lets a packet pass.
    pub fn conforms(&mut self, at: Time, bytes: u32) -> bool {
        let Some(bucket) = &mut self.police else {
            return true;
        };
        let conforms = bucket.take(at, u64::from(bytes) * 8);
        self.counters.policed += u64::from(!conforms);
        conforms
    }

    /// Changes the marks of a packet; the DSCP that it gave it.
    pub fn mark(&mut self, header: &mut Header) -> Option<u8> {
        if self.clear_ecn && header.ecn != 0 {
            header.ecn = 0;
            self.counters.ecn_cleared += 1;
        }
        let remark = self.remark?;
        header.class = remark.class;
        self.counters.dscp_set += 1;
        Some(remark.dscp)
    }
}
