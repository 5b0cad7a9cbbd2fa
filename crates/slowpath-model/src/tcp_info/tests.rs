// SPDX-License-Identifier: Apache-2.0

use super::raw::OFFSETS;
use super::*;
use proptest::prelude::*;

/// A struct in which the byte at offset i is i, but for the two enumerations.
fn counting() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..KNOWN_LENGTH).map(|i| i as u8).collect();
    bytes[0] = 1;
    bytes[1] = 4;
    bytes
}

fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
    bytes[offset..offset + value.len()].copy_from_slice(value);
}

#[test]
fn the_layout_has_no_holes() {
    let mut end = 0;
    for (name, offset, size) in OFFSETS {
        assert_eq!(*offset, end, "{name}");
        assert_eq!(offset % size, 0, "{name} is aligned");
        end = offset + size;
    }
    assert_eq!(end, KNOWN_LENGTH);
}

/// The running kernel's own description of the struct is the oracle.
#[test]
fn the_layout_is_the_running_kernels() {
    let test = "the_layout_is_the_running_kernels";
    let output = match std::process::Command::new("bpftool")
        .args(["-j", "btf", "dump", "file", "/sys/kernel/btf/vmlinux"])
        .output()
    {
        Ok(output) if output.status.success() => output.stdout,
        Ok(output) => {
            return println!("SKIPPED {test}: bpftool ended with {}", output.status);
        }
        Err(error) => return println!("SKIPPED {test}: bpftool: {error}"),
    };
    let types: serde_json::Value = serde_json::from_slice(&output).unwrap();
    let tcp_info = types["types"]
        .as_array()
        .unwrap()
        .iter()
        .find(|t| t["kind"] == "STRUCT" && t["name"] == "tcp_info")
        .unwrap();
    let members = tcp_info["members"].as_array().unwrap();
    for (name, offset, _) in OFFSETS {
        let bits = match *name {
            "tcpi_wscale" => member_bits(members, "tcpi_snd_wscale"),
            "tcpi_flags" => member_bits(members, "tcpi_delivery_rate_app_limited"),
            name => member_bits(members, name),
        };
        match bits {
            Some(bits) => assert_eq!(bits, *offset as u64 * 8, "{name}"),
            None => assert!(
                *offset as u64 >= tcp_info["size"].as_u64().unwrap(),
                "{name} is missing inside the kernel's struct"
            ),
        }
    }
}

fn member_bits(members: &[serde_json::Value], name: &str) -> Option<u64> {
    members
        .iter()
        .find(|m| m["name"] == name)
        .and_then(|m| m["bits_offset"].as_u64())
}

#[test]
fn a_field_that_is_cut_is_missing() {
    let bytes = counting();
    for length in 0..=KNOWN_LENGTH {
        let raw = RawTcpInfo::read(&bytes[..length]);
        let whole = OFFSETS.iter().filter(|(_, o, s)| o + s <= length);
        let kept: usize = whole.map(|(_, _, size)| size).sum();
        assert_eq!(raw.encode(), &bytes[..kept], "{length} bytes");
    }
}

#[test]
fn every_length_gives_statistics_or_the_named_error() {
    let bytes = counting();
    for length in 0..=KNOWN_LENGTH {
        let read = TcpInfo::read(&bytes[..length]);
        if length < 160 {
            assert_eq!(read, Err(TcpInfoError::TooShort { length }));
            continue;
        }
        let stats = read.unwrap().stats(SocketQueues::default());
        // (last byte of the field, whether the field is there), by the kernel's header
        for (end, there) in [
            (168, stats.delivery_rate.is_some()),
            (168, stats.app_limited.is_some()),
            (176, stats.busy.is_some()),
            (184, stats.rwnd_limited.is_some()),
            (192, stats.sndbuf_limited.is_some()),
            (196, stats.delivered.is_some()),
            (200, stats.delivered_ce.is_some()),
            (208, stats.bytes_sent.is_some()),
            (216, stats.bytes_retransmitted.is_some()),
            (220, stats.dsack_duplicates.is_some()),
            (224, stats.reordering_events.is_some()),
            (228, stats.out_of_order_in.is_some()),
            (232, stats.send_window.is_some()),
            (236, stats.receive_window.is_some()),
            (248, stats.rto_stats.is_some()),
        ] {
            assert_eq!(
                there,
                length >= end,
                "field ending at {end} of {length} bytes"
            );
        }
    }
}

#[test]
fn bytes_past_the_known_struct_are_ignored() {
    let mut longer = counting();
    longer.extend([0xff; 64]);
    assert_eq!(TcpInfo::read(&longer), TcpInfo::read(&counting()));
}

/// A struct of values that all differ, by their offsets in the kernel's header.
fn distinct_values() -> Vec<u8> {
    let mut bytes = vec![0; KNOWN_LENGTH];
    put(&mut bytes, 0, &[1, 3, 2, 5, 4]);
    put(&mut bytes, 8, &204_000u32.to_ne_bytes());
    put(&mut bytes, 16, &1448u32.to_ne_bytes());
    put(&mut bytes, 24, &10u32.to_ne_bytes());
    put(&mut bytes, 28, &6u32.to_ne_bytes());
    put(&mut bytes, 32, &7u32.to_ne_bytes());
    put(&mut bytes, 36, &8u32.to_ne_bytes());
    put(&mut bytes, 60, &1500u32.to_ne_bytes());
    put(&mut bytes, 68, &126_000u32.to_ne_bytes());
    put(&mut bytes, 72, &9_000u32.to_ne_bytes());
    put(&mut bytes, 76, &31u32.to_ne_bytes());
    put(&mut bytes, 80, &42u32.to_ne_bytes());
    put(&mut bytes, 88, &3u32.to_ne_bytes());
    put(&mut bytes, 100, &11u32.to_ne_bytes());
    put(&mut bytes, 104, &1_000_000u64.to_ne_bytes());
    put(&mut bytes, 120, &(1u64 << 40).to_ne_bytes());
    put(&mut bytes, 128, &(1u64 << 41).to_ne_bytes());
    put(&mut bytes, 136, &100u32.to_ne_bytes());
    put(&mut bytes, 140, &101u32.to_ne_bytes());
    put(&mut bytes, 144, &4096u32.to_ne_bytes());
    put(&mut bytes, 148, &125_000u32.to_ne_bytes());
    put(&mut bytes, 152, &103u32.to_ne_bytes());
    put(&mut bytes, 156, &104u32.to_ne_bytes());
    put(&mut bytes, 168, &5_000_000u64.to_ne_bytes());
    put(&mut bytes, 176, &3_000_000u64.to_ne_bytes());
    put(&mut bytes, 184, &1_000_000u64.to_ne_bytes());
    put(&mut bytes, 228, &65_536u32.to_ne_bytes());
    put(&mut bytes, 232, &32_768u32.to_ne_bytes());
    put(&mut bytes, 240, &6u16.to_ne_bytes());
    put(&mut bytes, 242, &2u16.to_ne_bytes());
    put(&mut bytes, 244, &1_500u32.to_ne_bytes());
    bytes
}

#[test]
fn values_come_from_their_offsets_in_their_units() {
    let bytes = distinct_values();
    let memory = SocketMemory {
        receive_buffer: 1,
        send_buffer: 2,
        send_memory: 3,
    };
    let stats = TcpInfo::read(&bytes).unwrap().stats(SocketQueues {
        send: 8192,
        receive: 77,
        memory: Some(memory),
    });

    assert_eq!(stats.state, TcpState::Established);
    assert_eq!(stats.ca_state, CaState::Recovery);
    assert_eq!(
        (stats.unanswered_timeouts, stats.probes, stats.backoff),
        (2, 5, 4)
    );
    assert_eq!(stats.rto, Micros(204_000));
    assert_eq!((stats.send_mss, stats.path_mtu), (1448, 1500));
    assert_eq!((stats.in_flight, stats.sacked), (10, 6));
    assert_eq!((stats.lost, stats.retransmitted_in_flight), (7, 8));
    assert_eq!(stats.srtt, Some(Micros(126_000)));
    assert_eq!(stats.rttvar, Micros(9_000));
    assert_eq!(stats.min_rtt, Some(Micros(125_000)));
    assert_eq!((stats.ssthresh, stats.cwnd), (Some(31), 42));
    assert_eq!((stats.reordering, stats.retransmitted), (3, 11));
    assert_eq!(stats.pacing_rate, Some(1_000_000));
    assert_eq!(
        (stats.bytes_acked, stats.bytes_received),
        (1 << 40, 1 << 41)
    );
    assert_eq!((stats.segments_out, stats.segments_in), (100, 101));
    assert_eq!(
        (stats.data_segments_in, stats.data_segments_out),
        (103, 104)
    );
    assert_eq!(stats.unsent, 4096);
    assert_eq!(stats.busy, Some(Micros(5_000_000)));
    assert_eq!(stats.rwnd_limited, Some(Micros(3_000_000)));
    assert_eq!(stats.sndbuf_limited, Some(Micros(1_000_000)));
    assert_eq!(stats.send_window, Some(65_536));
    assert_eq!(stats.receive_window, Some(32_768));
    let rto = stats.rto_stats.unwrap();
    assert_eq!((rto.timeouts, rto.recoveries), (6, 2));
    assert_eq!(rto.time, Micros(1_500_000));
    assert_eq!((stats.send_queue, stats.receive_queue), (8192, 77));
    assert_eq!(stats.receive_buffer, Some(1));
    assert_eq!(stats.send_buffer, Some(2));
    assert_eq!(stats.send_memory, Some(3));
    assert_eq!((stats.rtt_sums, stats.recovery), (None, None));
}

#[test]
fn the_kernels_ways_to_say_none_are_none() {
    let mut bytes = vec![0; KNOWN_LENGTH];
    bytes[0] = 2;
    put(&mut bytes, 76, &0x7fff_ffffu32.to_ne_bytes());
    put(&mut bytes, 104, &u64::MAX.to_ne_bytes());
    put(&mut bytes, 148, &u32::MAX.to_ne_bytes());
    let stats = TcpInfo::read(&bytes)
        .unwrap()
        .stats(SocketQueues::default());
    assert_eq!(stats.state, TcpState::SynSent);
    assert_eq!(stats.ssthresh, None);
    assert_eq!(stats.pacing_rate, None);
    assert_eq!(stats.min_rtt, None);
    assert_eq!(stats.srtt, None);
    assert_eq!(stats.delivery_rate, None);
    // A counter of zero is a measurement.
    assert_eq!(stats.bytes_sent, Some(0));
    assert_eq!(stats.busy, Some(Micros::ZERO));
}

#[test]
#[cfg(target_endian = "little")]
fn bit_fields_fill_the_byte_from_its_low_end() {
    let mut bytes = counting();
    bytes[6] = 0x7a;
    for (flags, limited) in [(0x00, false), (0x01, true), (0x06, false), (0x07, true)] {
        bytes[7] = flags;
        let info = TcpInfo::read(&bytes).unwrap();
        assert_eq!(info.send_window_scale(), 0xa);
        assert_eq!(info.receive_window_scale(), 0x7);
        let stats = info.stats(SocketQueues::default());
        assert_eq!(stats.app_limited, Some(limited), "{flags:#x}");
    }
}

#[test]
fn unknown_enumerators_are_errors() {
    let mut bytes = counting();
    bytes[0] = 13;
    assert_eq!(TcpInfo::read(&bytes), Err(TcpInfoError::State(13)));
    bytes[0] = 0;
    assert_eq!(TcpInfo::read(&bytes), Err(TcpInfoError::State(0)));
    bytes[0] = 1;
    bytes[1] = 5;
    assert_eq!(TcpInfo::read(&bytes), Err(TcpInfoError::CaState(5)));
}

#[test]
fn memory_needs_six_words() {
    let words: Vec<u8> = (10u32..19).flat_map(u32::to_ne_bytes).collect();
    for length in 0..=words.len() {
        let expected = (length >= 24).then_some(SocketMemory {
            receive_buffer: 11,
            send_buffer: 13,
            send_memory: 15,
        });
        assert_eq!(
            SocketMemory::read(&words[..length]),
            expected,
            "{length} bytes"
        );
    }
}

proptest! {
    #[test]
    fn reading_what_was_written_gives_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..320)) {
        let raw = RawTcpInfo::read(&bytes);
        prop_assert_eq!(RawTcpInfo::read(&raw.encode()), raw);
        if let Ok(info) = TcpInfo::read(&bytes) {
            let stats = info.stats(SocketQueues::default());
            prop_assert!(stats.ssthresh.is_none_or(|s| s < 0x7fff_ffff));
            prop_assert!(info.send_window_scale() < 16 && info.receive_window_scale() < 16);
        }
    }
}
