// SPDX-License-Identifier: Apache-2.0
//! A sender under the hand of a test.

use slowpath_netsim::tcp::{
    Ack, Algorithm, DelayedAck, LossDetection, SackBlocks, Sender, TcpConfig,
};
use slowpath_switch::{Span, Time};

/// Bytes of a segment.
pub const MSS: u64 = 1_000;

/// The RFCs without any option: NewReno, 10 segments, congestion avoidance from there on.
pub fn plain() -> TcpConfig {
    TcpConfig {
        algorithm: Algorithm::NewReno,
        sack: false,
        loss_detection: LossDetection::DuplicateAcks(3),
        mss: MSS as u16,
        initial_window: 10,
        initial_ssthresh: 10,
        delayed_ack: DelayedAck::Fixed(Span::from_millis(200)),
        ..TcpConfig::rfc_newreno()
    }
}

/// A sender, the time, and a shorthand for everything.
pub struct Script {
    pub config: TcpConfig,
    pub sender: Sender,
    pub now: Time,
}

impl Script {
    /// A connection that has as many segments to send.
    pub fn new(config: TcpConfig, segments: u64) -> Self {
        assert_eq!(config.check(), Ok(()));
        let mut sender = Sender::new(&config, 1 << 30);
        sender.write(&config, Time::ZERO, segments * MSS);
        Script {
            config,
            sender,
            now: Time::ZERO,
        }
    }

    /// `ms` milliseconds later; what is due on the way happens.
    pub fn wait(&mut self, ms: u64) -> &mut Self {
        let until = self.now + Span::from_millis(ms);
        while let Some(due) = self.sender.deadline().filter(|due| *due <= until) {
            self.now = due.max(self.now);
            self.sender.on_deadline(&self.config, self.now);
            if self.sender.wants_to_send(&self.config) {
                break;
            }
        }
        self.now = until;
        self
    }

    /// When the next timer expires, in milliseconds from now.
    pub fn timer(&self) -> Option<u64> {
        let due = self.sender.deadline()?;
        Some((due - self.now).as_nanos() / 1_000_000)
    }

    /// The timer expires.
    pub fn expire(&mut self) -> &mut Self {
        self.now = self.sender.deadline().expect("a timer runs");
        self.sender.on_deadline(&self.config, self.now);
        self
    }

    fn accept(&mut self, ack: u64, blocks: &[(u64, u64)], duplicate: bool, ece: bool) -> Vec<u64> {
        let mut sack = SackBlocks::default();
        sack.duplicate = duplicate;
        for (start, end) in blocks {
            sack.push(start * MSS, end * MSS);
        }
        let ack = Ack {
            ack: ack * MSS,
            window: 1 << 30,
            ece,
            syn: false,
            stamp: self.now,
            sack,
        };
        self.sender.on_ack(&self.config, self.now, &ack);
        self.sent()
    }

    /// An ACK of everything before a segment; what is sent then.
    pub fn ack(&mut self, ack: u64) -> Vec<u64> {
        self.accept(ack, &[], false, false)
    }

    /// The same with ECN-Echo.
    pub fn ack_echo(&mut self, ack: u64) -> Vec<u64> {
        self.accept(ack, &[], false, true)
    }

    /// The same with SACK blocks.
    pub fn sack(&mut self, ack: u64, blocks: &[(u64, u64)]) -> Vec<u64> {
        self.accept(ack, blocks, false, false)
    }

    /// The same, the first block a duplicate.
    pub fn dsack(&mut self, ack: u64, blocks: &[(u64, u64)]) -> Vec<u64> {
        self.accept(ack, blocks, true, false)
    }

    /// The segments that leave now, by number.
    pub fn sent(&mut self) -> Vec<u64> {
        let mut sent = Vec::new();
        while let Some(segment) = self.sender.poll_transmit(&self.config, self.now) {
            assert_eq!(segment.seq % MSS, 0);
            sent.push(segment.seq / MSS);
        }
        sent
    }

    /// The congestion window.
    pub fn window(&self) -> u32 {
        self.sender.congestion().window
    }

    /// The slow start threshold.
    pub fn ssthresh(&self) -> u32 {
        self.sender.congestion().ssthresh
    }
}

/// The numbers from `from` to before `to`.
pub fn range(from: u64, to: u64) -> Vec<u64> {
    (from..to).collect()
}

/// Nothing.
pub const NONE: [u64; 0] = [];
