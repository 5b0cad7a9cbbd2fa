// SPDX-License-Identifier: Apache-2.0
//! Many datagrams in one call, each with a TTL of its own (sendmmsg(2)): what the kernel sends one directly after the other.

use std::io;
use std::os::fd::AsRawFd;

/// Datagrams of one call.
const BATCH: usize = 64;

/// A control message with one int, aligned.
type Control = [u64; 3];

/// A datagram of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// TTL or hop limit.
    pub ttl: u8,
    /// Its payload.
    pub payload: &'a [u8],
}

/// Sends datagrams on a connected UDP socket, in order. An error that an earlier packet has brought is not these
/// packets': the call is made again.
///
/// # Errors
/// The kernel takes a packet neither at once nor when asked again.
pub fn send_batch(socket: &impl AsRawFd, v4: bool, datagrams: &[Datagram<'_>]) -> io::Result<()> {
    for batch in datagrams.chunks(BATCH) {
        let mut controls: Vec<Control> = batch.iter().map(|it| control(v4, it.ttl)).collect();
        let mut vectors: Vec<libc::iovec> = batch
            .iter()
            .map(|it| libc::iovec {
                iov_base: it.payload.as_ptr().cast_mut().cast(),
                iov_len: it.payload.len(),
            })
            .collect();
        let mut headers: Vec<libc::mmsghdr> = Vec::with_capacity(batch.len());
        for (vector, control) in vectors.iter_mut().zip(&mut controls) {
            // SAFETY: mmsghdr is plain numbers and pointers, for which zeros are valid.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = control.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = size_of::<Control>();
            headers.push(header);
        }
        let (mut sent, mut refused) = (0, 0);
        while sent < headers.len() {
            let rest = &mut headers[sent..];
            // SAFETY: every header points to one live vector and one live control message; the kernel does not write
            // to payloads that it sends.
            let result = unsafe {
                libc::sendmmsg(socket.as_raw_fd(), rest.as_mut_ptr(), rest.len() as u32, 0)
            };
            match usize::try_from(result) {
                Ok(count) if count > 0 => (sent, refused) = (sent + count, 0),
                _ if refused < 3 => refused += 1,
                _ => return Err(io::Error::last_os_error()),
            }
        }
    }
    Ok(())
}

/// IP_TTL or IPV6_HOPLIMIT as a control message: length, level and type, then an int.
fn control(v4: bool, ttl: u8) -> Control {
    let (level, kind) = match v4 {
        true => (libc::IPPROTO_IP, libc::IP_TTL),
        false => (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT),
    };
    let mut octets = [0u8; size_of::<Control>()];
    let length = size_of::<libc::cmsghdr>() + size_of::<libc::c_int>();
    octets[..8].copy_from_slice(&length.to_ne_bytes());
    octets[8..12].copy_from_slice(&level.to_ne_bytes());
    octets[12..16].copy_from_slice(&kind.to_ne_bytes());
    octets[16..20].copy_from_slice(&libc::c_int::from(ttl).to_ne_bytes());
    let mut control = [0; 3];
    for (word, octets) in control.iter_mut().zip(octets.chunks_exact(8)) {
        *word = u64::from_ne_bytes(octets.try_into().expect("eight octets"));
    }
    control
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{SocketOptions, StampedSocket};
    use std::net::{IpAddr, UdpSocket};

    #[test]
    fn each_datagram_of_a_batch_has_its_own_ttl_and_all_come_in_order() {
        for address in ["127.0.0.1", "::1"] {
            let address: IpAddr = address.parse().expect("an address");
            let Ok(receiver) = StampedSocket::open(&SocketOptions::on(address)) else {
                println!(
                    "SKIPPED each_datagram_of_a_batch_has_its_own_ttl_and_all_come_in_order: no {address} here"
                );
                continue;
            };
            let sender = UdpSocket::bind((address, 0)).expect("a port");
            sender
                .connect(receiver.local().expect("bound"))
                .expect("a route");
            let payloads: Vec<[u8; 2]> = (0..150u8).map(|number| [number; 2]).collect();
            let datagram = |payload: &'_ [u8; 2]| Datagram {
                ttl: payload[0] + 1,
                payload: &payloads[usize::from(payload[0])],
            };
            let datagrams: Vec<Datagram<'_>> = payloads.iter().map(datagram).collect();
            send_batch(&sender, address.is_ipv4(), &datagrams).expect("sent");
            for number in 0..150u8 {
                let mut buffer = [0; 10];
                let received = loop {
                    if let Some(received) = receiver.receive(&mut buffer).expect("a socket") {
                        break received;
                    }
                };
                assert_eq!(buffer[..received.length], [number; 2]);
                assert_eq!(received.ttl, Some(number + 1));
            }
        }
    }
}
