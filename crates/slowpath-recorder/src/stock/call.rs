// SPDX-License-Identifier: Apache-2.0
//! A program's calls: from their beginning to their return, and the runs that they begin when they have the lock.

use super::event::{Body, Event};
use super::options::visible;
use super::side::Side;
use super::wire::CallName;
use slowpath_recording::{Fragment, Handler, Outcome, options};

/// What a call asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum CallRequest {
    Connect,
    Accept,
    Send {
        bytes: u32,
        flags: u32,
        /// Where in its first page the data of a file begins.
        first_page: u32,
    },
    Receive {
        bytes: u32,
        flags: u32,
    },
    Shutdown {
        how: u32,
    },
    Close,
    Option {
        level: u32,
        name: u32,
        /// Its first bytes.
        value: u64,
        length: u32,
    },
}

#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) request: CallRequest,
    /// Its first run.
    pub(super) run: Option<usize>,
}

/// `None`: no call that this version knows.
fn call_request(body: &Body) -> Option<CallRequest> {
    Some(match body {
        Body::Call(call) => match CallName::from_raw(*call)? {
            CallName::Connect => CallRequest::Connect,
            CallName::Accept => CallRequest::Accept,
            CallName::Close => CallRequest::Close,
            CallName::Send | CallName::Receive | CallName::Shutdown => return None,
        },
        Body::Transfer(it) => {
            let (bytes, flags) = (it.bytes, it.flags);
            match CallName::from_raw(it.call)? {
                CallName::Send => CallRequest::Send {
                    bytes,
                    flags,
                    first_page: it.first_page,
                },
                CallName::Receive => CallRequest::Receive { bytes, flags },
                _ => return None,
            }
        }
        Body::Shutdown { how } => CallRequest::Shutdown { how: *how },
        Body::OptionCall(it) => CallRequest::Option {
            level: it.level,
            name: it.name,
            value: it.value,
            length: it.length,
        },
        _ => return None,
    })
}

impl Side {
    pub(super) fn call(&mut self, event: &Event) -> bool {
        let Some(request) = call_request(&event.body) else {
            return false;
        };
        self.calls
            .insert(event.of.task, Call { request, run: None });
        // The events of these come from inside.
        if matches!(request, CallRequest::Connect | CallRequest::Shutdown { .. }) {
            self.lock(event);
        }
        true
    }

    pub(super) fn lock(&mut self, event: &Event) {
        self.lock.owner = Some(event.of.task);
        self.lock.releasing = false;
        self.is_overtaken();
        self.look_for_others(event);
        let place = self.log.count();
        let Some(call) = self.calls.get_mut(&event.of.task) else {
            // Which call it is may turn out inside of it.
            return self.begin(event, options::LOCKED);
        };
        let handler = match (call.run, call.request) {
            (Some(_), _) => Handler::Resume,
            (_, CallRequest::Connect) => Handler::Connect,
            (_, CallRequest::Accept) => Handler::Accept,
            (_, CallRequest::Send { bytes, flags, .. }) => Handler::Send {
                bytes,
                flags,
                result: 0,
            },
            (_, CallRequest::Receive { bytes, flags }) => Handler::Receive {
                bytes,
                flags,
                result: 0,
            },
            (_, CallRequest::Shutdown { how }) => Handler::Shutdown {
                how: how.wrapping_sub(1) as u8,
            },
            (_, CallRequest::Close) => Handler::Close,
            (_, CallRequest::Option { .. }) => call.option(),
        };
        let first = call.run.is_none();
        call.run.get_or_insert(place);
        let call = *call;
        self.begin(event, handler);
        if let (Some(current), CallRequest::Send { first_page, .. }) =
            (&mut self.current, call.request)
        {
            let file = if first { first_page } else { 0 };
            let filled = match event.body {
                Body::Lock { fragment } => fragment,
                _ => 0,
            };
            let page = Fragment::TaskPage {
                filled: filled as u16,
                size: (filled >> 16) as u16,
            };
            for (place, fragment) in [(filled, page), (file, Fragment::File { offset: file })] {
                if place != 0 {
                    current.outcome(Outcome::Fragment(fragment));
                }
            }
        }
    }

    /// Whether it fits: a call that returned had begun.
    pub(super) fn call_end(&mut self, event: &Event, call: u32, result: i32) -> bool {
        let Some(ended) = self.calls.remove(&event.of.task) else {
            // Once more, to see what has become of the first one.
            return call == CallName::Connect as u32;
        };
        self.returned(ended, visible(result));
        true
    }

    /// The same of `setsockopt`.
    pub(super) fn option_end(&mut self, event: &Event, result: i32) -> bool {
        let Some(call) = self.calls.remove(&event.of.task) else {
            return false;
        };
        self.option_returned(&call, event, result);
        true
    }
}
