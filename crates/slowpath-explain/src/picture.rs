// SPDX-License-Identifier: Apache-2.0
//! A message over time, as a time-sequence graph draws it.

use super::messages::Message;
use super::sent::SentBytes;
use super::timeline::Timeline;
use slowpath_recording::{Handler, Moment};

/// Points of each kind, at most about.
const MOST: usize = 1_000;

/// What the sender of a message did with it, by its own clock; places are of its stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picture {
    /// Calls of the application: when, and up to where it had written then.
    pub calls: Vec<(Moment, u64)>,
    /// Packets with bytes of the message.
    pub packets: Vec<SentBytes>,
    /// Acknowledgments that moved on: when they came, and up to where.
    pub acknowledged: Vec<(Moment, u64)>,
    /// Up to where the windows let it send, when that changed.
    pub windows: Vec<WindowEdges>,
}

/// Up to where each window reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowEdges {
    /// From when on.
    pub at: Moment,
    /// The congestion window: so many full segments behind what is acknowledged.
    pub congestion: u64,
    /// The window that the receiver announced.
    pub receive: u64,
}

/// From the message's first call until all of it is acknowledged or the other end has it, whichever is later.
pub(super) fn picture(timeline: &Timeline<'_>, message: &Message) -> Picture {
    let end = usize::from(message.end);
    let steps = &timeline.steps[end];
    let segment = timeline.segment[end].max(1);
    let acknowledged = |step: &&super::timeline::Step<'_>| step.acknowledged >= message.bytes.end;
    let until = steps.iter().find(acknowledged).map(|step| step.at);
    let until = until.max(message.done).unwrap_or(Moment(u64::MAX));
    let during = |at: Moment| at >= message.begun && at <= until;
    let mut picture = Picture::default();
    let (mut written, mut before) = (0, (0, None));
    for step in steps {
        if let Handler::Send { result, .. } = step.handler {
            written += u64::try_from(*result).unwrap_or(0);
            if during(step.at) && written > message.bytes.start {
                picture
                    .calls
                    .push((step.at, written.min(message.bytes.end)));
            }
        }
        let edges = step.after.map(|state| {
            let congestion = u64::from(state.congestion_window()) * segment;
            let receive = u64::from(state.send_window());
            (step.acknowledged + congestion, step.acknowledged + receive)
        });
        if during(step.at) {
            if step.acknowledged > before.0 {
                picture.acknowledged.push((step.at, step.acknowledged));
            }
            if let Some((congestion, receive)) = edges.filter(|edges| Some(*edges) != before.1) {
                picture.windows.push(WindowEdges {
                    at: step.at,
                    congestion,
                    receive,
                });
            }
        }
        before = (before.0.max(step.acknowledged), edges.or(before.1));
    }
    let packets = timeline.packets[end].iter().enumerate();
    let packets = packets.filter(|(_, packet)| packet.carries(&message.bytes));
    picture.packets = packets
        .map(|(number, packet)| SentBytes::new(number, packet))
        .collect();
    // What was lost or sent again is what the picture is for.
    let plain = picture.packets.iter().filter(|it| !it.again && !it.lost);
    let stride = plain.count().div_ceil(MOST).max(1);
    let mut number = 0;
    picture.packets.retain(|it| {
        let stays = it.again || it.lost || number % stride == 0;
        number += usize::from(!it.again && !it.lost);
        stays
    });
    thin(&mut picture.calls);
    thin(&mut picture.acknowledged);
    thin(&mut picture.windows);
    picture
}

/// Every so many, and the last.
fn thin<T: Clone>(points: &mut Vec<T>) {
    let stride = points.len().div_ceil(MOST).max(1);
    if let Some(last) = points.last().cloned().filter(|_| stride > 1) {
        *points = points.iter().step_by(stride).cloned().collect();
        points.push(last);
    }
}

#[cfg(test)]
mod tests {
    use super::thin;

    #[test]
    fn many_points_become_few_and_both_ends_stay() {
        let mut points: Vec<u32> = (0..12_345).collect();
        thin(&mut points);
        assert!(points.len() <= 1_001, "{}", points.len());
        assert_eq!((points[0], points[points.len() - 1]), (0, 12_344));
        let mut few = vec![1, 2, 3];
        thin(&mut few);
        assert_eq!(few, [1, 2, 3]);
    }
}
