// SPDX-License-Identifier: Apache-2.0
//! Measurement messages of ndt7 (its specification, version 0.8 and later, *Measurement message*).

use serde::Deserialize;
use slowpath_model::tcp_info::{RawTcpInfo, SocketQueues, TcpInfo};
use slowpath_model::{MonoNanos, TcpStats};

/// A message of a server. What is missing in one is `None`; further fields are left out.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Measurement {
    /// What its application counted.
    pub app_info: Option<AppInfo>,
    /// Its kernel's statistics of the connection.
    #[serde(rename = "TCPInfo")]
    pub tcp_info: Option<NdtTcpInfo>,
}

/// What an application counted.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct AppInfo {
    /// Since the beginning of the test, µs.
    pub elapsed_time: Option<i64>,
    /// Octets of messages since then.
    pub num_bytes: Option<i64>,
}

/// The kernel's statistics, by the names that M-Lab's servers give to fields of `struct tcp_info`. Only the first part is in
/// the specification.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
#[allow(missing_docs, reason = "the kernel's fields, in its units")]
pub struct NdtTcpInfo {
    pub elapsed_time: Option<i64>,
    pub busy_time: Option<i64>,
    pub bytes_acked: Option<i64>,
    pub bytes_received: Option<i64>,
    pub bytes_sent: Option<i64>,
    pub bytes_retrans: Option<i64>,
    #[serde(rename = "MinRTT")]
    pub min_rtt: Option<i64>,
    #[serde(rename = "RTT")]
    pub rtt: Option<i64>,
    #[serde(rename = "RTTVar")]
    pub rtt_var: Option<i64>,
    #[serde(rename = "RWndLimited")]
    pub rwnd_limited: Option<i64>,
    pub snd_buf_limited: Option<i64>,
    #[serde(flatten)]
    pub further: FurtherTcpInfo,
}

/// What the specification does not name.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
#[allow(missing_docs, reason = "the kernel's fields, in its units")]
pub struct FurtherTcpInfo {
    #[serde(rename = "CAState")]
    pub ca_state: Option<i64>,
    #[serde(rename = "SndMSS")]
    pub snd_mss: Option<i64>,
    pub unacked: Option<i64>,
    pub snd_cwnd: Option<i64>,
    pub notsent_bytes: Option<i64>,
    pub total_retrans: Option<i64>,
    pub data_segs_out: Option<i64>,
    pub delivery_rate: Option<i64>,
    #[serde(rename = "DeliveredCE")]
    pub delivered_ce: Option<i64>,
    pub snd_wnd: Option<i64>,
}

/// A number that the kernel could have given.
fn unsigned<T: TryFrom<i64>>(number: Option<i64>) -> Option<T> {
    T::try_from(number?).ok()
}

impl NdtTcpInfo {
    /// When it was read, since the beginning of the test.
    #[must_use]
    pub fn at(&self) -> Option<MonoNanos> {
        let micros: u64 = unsigned(self.elapsed_time)?;
        Some(MonoNanos(micros.saturating_mul(1_000)))
    }

    /// The statistics; gauges that were not sent are 0 there, as of a kernel that has none.
    #[must_use]
    pub fn stats(&self) -> Option<TcpStats> {
        /// TCP_ESTABLISHED: while it measures, a connection is nothing else.
        const ESTABLISHED: u8 = 1;
        let further = &self.further;
        // That nothing waits to be sent is known only if both are.
        let in_flight = further.notsent_bytes.and(further.unacked);
        let raw = RawTcpInfo {
            tcpi_state: Some(ESTABLISHED),
            tcpi_ca_state: Some(unsigned(further.ca_state).unwrap_or(0)),
            tcpi_data_segs_out: Some(unsigned(further.data_segs_out).unwrap_or(0)),
            tcpi_busy_time: unsigned(self.busy_time),
            tcpi_bytes_acked: unsigned(self.bytes_acked),
            tcpi_bytes_received: unsigned(self.bytes_received),
            tcpi_bytes_sent: unsigned(self.bytes_sent),
            tcpi_bytes_retrans: unsigned(self.bytes_retrans),
            tcpi_min_rtt: unsigned(self.min_rtt),
            tcpi_rtt: unsigned(self.rtt),
            tcpi_rttvar: unsigned(self.rtt_var),
            tcpi_rwnd_limited: unsigned(self.rwnd_limited),
            tcpi_sndbuf_limited: unsigned(self.snd_buf_limited),
            tcpi_snd_mss: unsigned(further.snd_mss),
            tcpi_unacked: unsigned(in_flight),
            tcpi_snd_cwnd: unsigned(further.snd_cwnd),
            tcpi_notsent_bytes: unsigned(further.notsent_bytes),
            tcpi_total_retrans: unsigned(further.total_retrans),
            tcpi_delivery_rate: unsigned(further.delivery_rate),
            tcpi_delivered_ce: unsigned(further.delivered_ce),
            tcpi_snd_wnd: unsigned(further.snd_wnd),
            ..RawTcpInfo::default()
        };
        let info = TcpInfo::try_from(raw).ok()?;
        Some(info.stats(SocketQueues::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use slowpath_model::Micros;

    /// The specification's own example, with a field that it does not name.
    #[test]
    fn the_specifications_message_is_read() {
        let text = r#"{"AppInfo": {"ElapsedTime": 1234, "NumBytes": 5678},
            "ConnectionInfo": {"Client": "1.2.3.4:5678", "Server": "[::1]:2345", "UUID": "x"},
            "Origin": "server", "Test": "download",
            "TCPInfo": {"BusyTime": 1000, "BytesAcked": 2, "BytesReceived": 3, "BytesSent": 4, "BytesRetrans": 5,
                "ElapsedTime": 1234, "MinRTT": 6, "RTT": 7, "RTTVar": 8, "RWndLimited": 9, "SndBufLimited": 10,
                "SndCwnd": 11, "SndMSS": 12, "Options": 7}}"#;
        let read: Measurement = serde_json::from_str(text).expect("a measurement");
        let app = read.app_info.expect("there");
        assert_eq!(
            (app.elapsed_time, app.num_bytes),
            (Some(1_234), Some(5_678))
        );
        let info = read.tcp_info.expect("there");
        assert_eq!(info.at(), Some(MonoNanos(1_234_000)));
        let stats = info.stats().expect("plausible");
        assert_eq!(stats.busy, Some(Micros(1_000)));
        assert_eq!(
            (stats.bytes_sent, stats.bytes_retransmitted),
            (Some(4), Some(5))
        );
        assert_eq!(
            (stats.min_rtt, stats.srtt),
            (Some(Micros(6)), Some(Micros(7)))
        );
        assert_eq!(
            (stats.rwnd_limited, stats.sndbuf_limited),
            (Some(Micros(9)), Some(Micros(10)))
        );
        assert_eq!((stats.cwnd, stats.send_mss), (11, 12));
        assert_eq!(stats.send_window, None);
    }

    #[test]
    fn what_is_missing_or_impossible_is_not_zero() {
        let text = r#"{"TCPInfo": {"ElapsedTime": 5, "BusyTime": -1, "MinRTT": 99999999999}}"#;
        let read: Measurement = serde_json::from_str(text).expect("a measurement");
        let stats = read
            .tcp_info
            .and_then(|info| info.stats())
            .expect("plausible");
        assert_eq!(
            (stats.busy, stats.min_rtt, stats.rwnd_limited),
            (None, None, None)
        );
        assert!(read.app_info.is_none());
    }

    proptest! {
        #[test]
        fn any_numbers_are_read(numbers in prop::collection::vec(any::<i64>(), 8)) {
            let text = serde_json::json!({"TCPInfo": {"ElapsedTime": numbers[0], "CAState": numbers[1],
                "SndCwnd": numbers[2], "SndMSS": numbers[3], "BusyTime": numbers[4], "RTT": numbers[5],
                "Unacked": numbers[6], "NotsentBytes": numbers[7]}});
            let read: Measurement = serde_json::from_value(text).expect("a measurement");
            let _ = read.tcp_info.and_then(|info| info.stats());
        }
    }
}
