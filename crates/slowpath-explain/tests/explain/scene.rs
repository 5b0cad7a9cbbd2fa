// SPDX-License-Identifier: Apache-2.0
//! A connection written down by hand: who ran what when, what was sent, what the socket's fields were after it.

use slowpath_explain::{Explanation, Facts, State, explain};
use slowpath_recording::fields::{SocketFields, Variable, variables};
use slowpath_recording::headers::Header;
use slowpath_recording::{Connection, End, Handler, Moment, Run, Settings, Timer};

/// Bytes of every packet of data.
pub const SIZE: u32 = 1000;

pub struct Scene {
    connection: Connection,
    headers: [Vec<Header>; 2],
    states: [Vec<State>; 2],
    fields: [SocketFields; 2],
    at: u64,
}

pub fn data(number: u32) -> Handler {
    Handler::Packet {
        number,
        marked: false,
        backlog: false,
        merged: 1,
        truesize: 2304,
    }
}

pub fn timer(timer: Timer) -> Handler {
    Handler::Timer {
        timer,
        deferred: false,
    }
}

impl Scene {
    /// Open since 0 us, the client's SYN and ACK and the server's SYN-ACK being sent: numbers 0 and 1, and 0. Round trips take 100 us.
    pub fn open() -> Self {
        let address = |port| std::net::SocketAddr::from(([10, 0, 0, 1], port));
        let mut settings = Settings::default();
        for sysctls in &mut settings.sysctls {
            sysctls.insert("tcp_recovery".to_owned(), "0".to_owned());
        }
        let mut scene = Scene {
            connection: Connection {
                addresses: [address(1), address(2)],
                settings,
                ends: [End::default(), End::default()],
                joint: None,
            },
            headers: Default::default(),
            states: Default::default(),
            fields: [SocketFields::NONE; 2],
            at: 0,
        };
        scene.set(
            0,
            &[
                ("state", 1),
                ("reordering", 3),
                ("snd_cwnd", 10),
                ("snd_wnd", 1 << 16),
            ],
        );
        scene.set(1, &[("state", 1), ("reordering", 3)]);
        scene.run(0, 0, Handler::Connect);
        scene.sends(0, 0, 0, 0, 0x02);
        scene.run(1, 50, data(0));
        scene.sends(1, 0, 0, 0, 0x12);
        scene.run(0, 100, data(0));
        scene.sends(0, 1, 0, 1, 0x10);
        scene.run(1, 150, data(1));
        scene
    }

    pub fn sysctl(&mut self, name: &str, value: &str) {
        for sysctls in &mut self.connection.settings.sysctls {
            sysctls.insert(name.to_owned(), value.to_owned());
        }
    }

    /// Fields from the next run on.
    pub fn set(&mut self, end: usize, fields: &[(&str, u32)]) {
        for (name, value) in fields {
            let Variable::Checked(field) = variables([*name]).expect(name)[0] else {
                panic!("no rule looks at {name}")
            };
            self.fields[end][field] = *value;
        }
    }

    /// A run, at `us` microseconds.
    pub fn run(&mut self, end: usize, us: u64, handler: Handler) {
        self.at = us * 1000;
        self.connection.ends[end].runs.push(Run {
            at: Moment(self.at),
            jiffies: (us / 4000) as u32,
            handler,
            outcomes: Vec::new(),
            check: None,
        });
        self.states[end].push(State::new(self.fields[end]));
    }

    /// The run before sent a packet.
    fn sends(&mut self, end: usize, sequence: u32, payload: u32, acknowledgment: u32, flags: u16) {
        self.headers[end].push(Header {
            at: Moment(self.at),
            forward: end == 0,
            sequence,
            acknowledgment: (flags & 0x10 != 0).then_some(acknowledgment),
            flags,
            window: 1000,
            payload,
            ecn: 0,
            sack: Vec::new(),
            options: Vec::new(),
            timestamps: None,
        });
    }

    /// The run before sent the client's packets of data from the first on, counted from 0.
    pub fn sends_data(&mut self, first: u32, count: u32) {
        for number in first..first + count {
            self.sends(0, 1 + number * SIZE, SIZE, 1, 0x10);
        }
    }

    /// The run before acknowledged `packets` of data, with a window.
    pub fn acknowledges(&mut self, packets: u32, window: u16) {
        self.sends(1, 1, 0, 1 + packets * SIZE, 0x10);
        if let Some(header) = self.headers[1].last_mut() {
            header.window = window;
        }
    }

    /// The application writes `count` packets, which are sent at once.
    pub fn writes(&mut self, us: u64, first: u32, count: u32) {
        let bytes = count * SIZE;
        let result = bytes as i32;
        self.run(
            0,
            us,
            Handler::Send {
                bytes,
                flags: 0,
                result,
            },
        );
        self.sends_data(first, count);
    }

    pub fn explained(&self) -> Vec<Explanation> {
        let facts = Facts {
            connection: &self.connection,
            headers: [&self.headers[0], &self.headers[1]],
            states: [&self.states[0], &self.states[1]],
            one_clock: true,
        };
        explain(&facts).expect("the headers are of the connection")
    }
}
