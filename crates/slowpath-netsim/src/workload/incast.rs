// SPDX-License-Identifier: Apache-2.0
//! Queries that many hosts answer at once.

use super::endpoints::Endpoints;
use super::random::exponential;
use super::{Flow, Query, Workload};
use slowpath_switch::{Random, Span, Time};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The moments of queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// At random, on average at the rate.
    #[default]
    Poisson,
    /// Exactly at the rate, the first at the start.
    Periodic,
}

/// Queries: a host asks `degree` others, chosen uniformly, and each answers with `response`
/// bytes at once. The requests themselves are not sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Incast {
    /// Who answers (`from`) and who asks (`to`).
    pub endpoints: Endpoints,
    /// Queries a second in the whole network.
    pub rate: f64,
    /// When they come.
    pub arrivals: Arrivals,
    /// How many answer each.
    pub degree: u32,
    /// How much each answers, in bytes.
    pub response: u64,
    /// Each answer begins up to so much after the query, uniformly.
    pub jitter: Span,
    /// Most queries.
    pub count: Option<u64>,
}

impl Incast {
    /// The mean payload that all queries ask for, in bits a second.
    pub fn offered(&self) -> f64 {
        self.rate * f64::from(self.degree) * self.response as f64 * 8.0
    }

    pub(super) fn flows<'a>(
        &'a self,
        number: u16,
        workload: &Workload,
        random: Random,
    ) -> impl Iterator<Item = Flow> + 'a {
        Answers {
            incast: self,
            number,
            next: workload.start,
            stop: workload.stop,
            asked: 0,
            order: Vec::new(),
            waiting: BinaryHeap::new(),
            random,
        }
    }
}

/// The answers to come, in the order of time although those of a query may begin after the
/// next query.
struct Answers<'a> {
    incast: &'a Incast,
    number: u16,
    /// When the next query comes.
    next: Time,
    /// No query from here on; what answers an earlier one still does.
    stop: Time,
    asked: u64,
    order: Vec<u32>,
    waiting: BinaryHeap<Reverse<Flow>>,
    random: Random,
}

impl Answers<'_> {
    fn ask(&mut self) {
        let incast = self.incast;
        let gap = 1e12 / incast.rate;
        let at = match incast.arrivals {
            Arrivals::Poisson => self.next + exponential(&mut self.random, gap),
            Arrivals::Periodic => self.next,
        };
        if at >= self.stop {
            self.next = Time::MAX;
            return;
        }
        let query = Query {
            // More than 2^32 queries are not asked: see `Iterator::next`.
            number: self.asked as u32,
            degree: incast.degree,
            asked: at,
        };
        self.asked += 1;
        self.next = match incast.arrivals {
            Arrivals::Poisson => at,
            Arrivals::Periodic => self.next + Span(gap as u64),
        };
        let to = incast.endpoints.receiver(&mut self.random);
        let order = &mut self.order;
        let senders = incast
            .endpoints
            .senders_to(to, incast.degree, order, &mut self.random);
        for from in senders {
            let delay = match incast.jitter {
                Span::ZERO => Span::ZERO,
                Span(most) => {
                    Span(((u128::from(self.random.next_u64()) * u128::from(most)) >> 64) as u64)
                }
            };
            self.waiting.push(Reverse(Flow {
                start: at + delay,
                workload: self.number,
                from,
                to,
                bytes: Some(incast.response),
                query: Some(query),
            }));
        }
    }
}

impl Iterator for Answers<'_> {
    type Item = Flow;

    fn next(&mut self) -> Option<Flow> {
        let most = self
            .incast
            .count
            .unwrap_or(u64::MAX)
            .min(u64::from(u32::MAX));
        // Every later query comes after `next`, so what waits until then is the earliest.
        while self.asked < most
            && self.next != Time::MAX
            && self
                .waiting
                .peek()
                .is_none_or(|flow| flow.0.start >= self.next)
        {
            self.ask();
        }
        self.waiting.pop().map(|flow| flow.0)
    }
}
