// SPDX-License-Identifier: Apache-2.0
//! The flows of all workloads in the order of time.

use super::{Flow, Kind, Workload};
use slowpath_switch::Random;
use std::iter::Peekable;

/// Random numbers of workloads: separate from those of switches, whose streams are below 2^32.
const STREAMS: u64 = 1 << 40;

type Flows<'a> = Peekable<Box<dyn Iterator<Item = Flow> + Send + 'a>>;

/// The flows of all workloads in the order of time; at one moment, in the order of
/// workloads, and in each as it makes them.
pub struct FlowStream<'a> {
    sources: Vec<Flows<'a>>,
}

impl<'a> FlowStream<'a> {
    /// From the beginning.
    pub fn new(workloads: &'a [Workload], seed: u64) -> Self {
        let source = |(number, workload): (usize, &'a Workload)| -> Flows<'a> {
            let random = Random::stream(seed, STREAMS + number as u64);
            let number = number as u16;
            let flows: Box<dyn Iterator<Item = Flow> + Send + 'a> = match &workload.kind {
                Kind::Poisson(poisson) => Box::new(poisson.flows(number, workload, random)),
                Kind::Incast(incast) => Box::new(incast.flows(number, workload, random)),
                Kind::Bulk(bulk) => bulk.flows(number, workload, random),
                Kind::Permutation(hosts) => Box::new(hosts.flows(number, workload, random)),
                Kind::Trace(flows) => Box::new(flows.iter().map(move |flow| Flow {
                    workload: number,
                    start: workload.start + flow.start.since(slowpath_switch::Time::ZERO),
                    ..*flow
                })),
            };
            // An answer belongs to its query, which was in time.
            let stop = workload.stop;
            let flows: Box<dyn Iterator<Item = Flow> + Send + 'a> =
                Box::new(flows.take_while(move |flow| flow.query.is_some() || flow.start < stop));
            flows.peekable()
        };
        FlowStream {
            sources: workloads.iter().enumerate().map(source).collect(),
        }
    }
}

impl Iterator for FlowStream<'_> {
    type Item = Flow;

    fn next(&mut self) -> Option<Flow> {
        let starts = self.sources.iter_mut().enumerate();
        let starts = starts.filter_map(|(at, flows)| flows.peek().map(|flow| (flow.start, at)));
        let (_, first) = starts.min()?;
        self.sources[first].next()
    }
}
