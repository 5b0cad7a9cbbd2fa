// SPDX-License-Identifier: Apache-2.0
//! A `struct tcp_info` of any kernel.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slowpath_fuzz::{check_stats, tcp_info};
use slowpath_observe::tcp_info::{
    KNOWN_LENGTH, MANDATORY_LENGTH, RawTcpInfo, SocketMemory, SocketQueues, TcpInfo, TcpInfoError,
};

fuzz_target!(
    init: slowpath_fuzz::write_seeds(seeds),
    |data: &[u8]| {
        let raw = RawTcpInfo::read(data);
        let encoded = raw.encode();
        assert!(encoded.len() <= data.len().min(KNOWN_LENGTH));
        assert!(data.starts_with(&encoded));
        // What is left is less than the widest field.
        assert!(data.len().min(KNOWN_LENGTH) - encoded.len() < 8);
        assert_eq!(RawTcpInfo::read(&encoded), raw);

        let queues = SocketQueues {
            memory: SocketMemory::read(data),
            ..SocketQueues::default()
        };
        assert_eq!(queues.memory.is_some(), data.len() >= 24);
        match TcpInfo::read(data) {
            Ok(info) => {
                assert!(data.len() >= MANDATORY_LENGTH);
                assert!(info.send_window_scale() < 16 && info.receive_window_scale() < 16);
                check_stats(&info.stats(queues));
            }
            Err(TcpInfoError::TooShort { length }) => {
                assert!(length == data.len() && length < MANDATORY_LENGTH);
            }
            Err(TcpInfoError::State(state)) => assert!(state == 0 || state > 12),
            Err(TcpInfoError::CaState(state)) => assert!(state > 4),
        }
    }
);

fn seeds() -> Vec<Vec<u8>> {
    // As 4.6, 4.9, 4.10, 4.19, 5.4, 6.2, 6.7 and 6.18 give it, then a later kernel's.
    let mut seeds: Vec<_> = [160, 168, 192, 224, 232, 240, 248, 280]
        .into_iter()
        .map(tcp_info)
        .collect();
    seeds.push([tcp_info(280), vec![1; 16]].concat());
    seeds
}
