// SPDX-License-Identifier: Apache-2.0
//! Who has which address.
//!
//! Host n (from 0) has 10.0.(n / 250).(n mod 250 + 1) and fd00:510::(n + 1); router n has
//! 10.255.(n / 250).(n mod 250 + 1) and fd00:510:0:ff::(n + 1).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses in a third octet.
const ROW: u32 = 250;
/// Third octets.
const ROWS: u32 = 250;

/// The most hosts, and the most routers, with an address.
pub(super) const MOST: u32 = ROW * ROWS;

/// What an address means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Addressee {
    Host(u32),
    Router(u32),
}

impl Addressee {
    /// The IPv4 address; the number is below [`MOST`].
    pub fn v4(self) -> Ipv4Addr {
        let (second, number) = match self {
            Addressee::Host(number) => (0, number),
            Addressee::Router(number) => (255, number),
        };
        let (row, place) = (number / ROW % ROWS, number % ROW + 1);
        // Both at most 250.
        Ipv4Addr::new(10, second, row as u8, place as u8)
    }

    /// The IPv6 address; the number is below [`MOST`].
    pub fn v6(self) -> Ipv6Addr {
        let (subnet, number) = match self {
            Addressee::Host(number) => (0, number),
            Addressee::Router(number) => (255, number),
        };
        // At most 62,500.
        let last = (number + 1) as u16;
        Ipv6Addr::new(0xfd00, 0x510, 0, subnet, 0, 0, 0, last)
    }

    /// Whose address it is, if it can be anyone's.
    pub fn of(address: IpAddr) -> Option<Addressee> {
        let who = match address {
            IpAddr::V4(address) => {
                let [_, second, row, place] = address.octets();
                let number = u32::from(row) * ROW + u32::from(place).checked_sub(1)?;
                match second {
                    0 => Addressee::Host(number),
                    255 => Addressee::Router(number),
                    _ => return None,
                }
            }
            IpAddr::V6(address) => {
                let [_, _, _, subnet, _, _, _, last] = address.segments();
                let number = u32::from(last).checked_sub(1)?;
                match subnet {
                    0 => Addressee::Host(number),
                    255 => Addressee::Router(number),
                    _ => return None,
                }
            }
        };
        let same = match address {
            IpAddr::V4(address) => who.v4() == address,
            IpAddr::V6(address) => who.v6() == address,
        };
        same.then_some(who)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_numbers_are_one_to_one() {
        for number in [0, 1, 249, 250, 251, 62_499] {
            for who in [Addressee::Host(number), Addressee::Router(number)] {
                assert_eq!(Addressee::of(who.v4().into()), Some(who));
                assert_eq!(Addressee::of(who.v6().into()), Some(who));
            }
        }
        assert_eq!(Addressee::Host(250).v4(), Ipv4Addr::new(10, 0, 1, 1));
        for other in [
            "10.0.0.0",
            "10.0.0.251",
            "10.1.0.1",
            "11.0.0.1",
            "0.0.0.0",
            "255.255.255.255",
        ] {
            let address: IpAddr = other.parse().expect("an address");
            assert_eq!(Addressee::of(address), None, "{other}");
        }
        for other in ["::1", "fd00:510::", "fd00:510:0:1::1", "fe80::1", "ff02::2"] {
            let address: IpAddr = other.parse().expect("an address");
            assert_eq!(Addressee::of(address), None, "{other}");
        }
    }
}
