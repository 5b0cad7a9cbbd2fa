// SPDX-License-Identifier: Apache-2.0
//! Where ECN or DSCP changes, by the headers that routers quote.
//!
//! An ICMP error quotes the header of the packet as the router received it (RFC 792, RFC 4443 section 2.4 (c)). So a
//! value that a hop quotes first was written on the link before it, by the node at the link's other end or by anything
//! between.

use super::result::{Ecn, Mark, MarkChange, Marks};
use std::net::IpAddr;

/// What a hop quoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted {
    /// Its distance.
    pub ttl: u8,
    /// Its address.
    pub address: IpAddr,
    /// The octet that was called TOS.
    pub tos: u8,
}

/// Changes of both fields: `None` where no hop quoted a header. `quoted` is in the order of the way.
#[must_use]
pub fn changes(sent: u8, quoted: &[Quoted]) -> Option<(Marks, Marks)> {
    if quoted.is_empty() {
        return None;
    }
    let ecn = of_field(sent, quoted, |tos| Mark::Ecn(Ecn::of(tos)));
    let dscp = of_field(sent, quoted, |tos| Mark::Dscp(tos >> 2));
    Some((ecn, dscp))
}

fn of_field(sent: u8, quoted: &[Quoted], field: impl Fn(u8) -> Mark) -> Marks {
    let sent = field(sent);
    let mut before = sent;
    let mut changes = Vec::new();
    for quote in quoted {
        let to = field(quote.tos);
        if to != before {
            changes.push(MarkChange {
                hop: quote.ttl,
                address: quote.address,
                from: before,
                to,
            });
            before = to;
        }
    }
    Marks {
        sent,
        changes,
        quoted: u32::try_from(quoted.len()).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_changes_does_so_before_the_first_hop_that_quotes_it() {
        // 46 and ECT(0): 0xba. Hop 2 is silent; the DSCP is gone from hop 3 on, the ECN from hop 4 on.
        let quote = |ttl, tos| Quoted {
            ttl,
            address: IpAddr::from([192, 0, 2, ttl]),
            tos,
        };
        let quoted = [
            quote(1, 0xba),
            quote(3, 0x02),
            quote(4, 0x00),
            quote(5, 0x00),
        ];
        let (ecn, dscp) = changes(0xba, &quoted).expect("quoted");
        let change = |hop, from, to| MarkChange {
            hop,
            address: IpAddr::from([192, 0, 2, hop]),
            from,
            to,
        };
        assert_eq!(
            ecn.changes,
            [change(4, Mark::Ecn(Ecn::Ect0), Mark::Ecn(Ecn::NotEct))]
        );
        assert_eq!(dscp.changes, [change(3, Mark::Dscp(46), Mark::Dscp(0))]);
        assert_eq!((ecn.sent, ecn.quoted), (Mark::Ecn(Ecn::Ect0), 4));
        let json = serde_json::to_string(&ecn.changes[0]).expect("plain data");
        assert_eq!(
            json,
            r#"{"hop":4,"address":"192.0.2.4","from":"ect0","to":"not_ect"}"#
        );
    }

    #[test]
    fn nothing_quoted_is_nothing_known() {
        assert_eq!(changes(0xba, &[]), None);
    }
}
