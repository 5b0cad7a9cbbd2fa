// SPDX-License-Identifier: Apache-2.0
//! The section of TCP.

use super::error::{Problem, ScenarioError};
use super::section::{Section, Value};
use crate::tcp::{
    Algorithm, DelayedAck, Ecn, LossDetection, Reading, ReceiveWindow, RtoEstimator, TcpConfig,
};
use slowpath_switch::Span;

/// The largest receive window, RFC 7323 section 2.3: 2^30.
const MAX_WINDOW: u64 = 1 << 30;

/// Reads a section; what it does not say is as in `base`.
pub(super) fn read(section: Section<'_>, base: TcpConfig) -> Result<TcpConfig, ScenarioError> {
    let mut tcp = match section.get("preset") {
        None => base,
        Some(preset) => preset.choice::<fn() -> TcpConfig>(&[
            ("linux", TcpConfig::linux),
            ("rfc-newreno", TcpConfig::rfc_newreno),
            ("dctcp", TcpConfig::dctcp),
        ])?(),
    };
    algorithm(&section, &mut tcp)?;
    loss(&section, &mut tcp)?;
    for (key, field) in [
        ("sack", &mut tcp.sack),
        ("tail-loss-probe", &mut tcp.tail_loss_probe),
        (
            "proportional-rate-reduction",
            &mut tcp.proportional_rate_reduction,
        ),
        ("frto", &mut tcp.frto),
        ("dsack-undo", &mut tcp.dsack_undo),
        ("limited-transmit", &mut tcp.limited_transmit),
        ("slow-start-after-idle", &mut tcp.slow_start_after_idle),
        ("handshake", &mut tcp.handshake),
        ("pacing", &mut tcp.pacing),
    ] {
        if let Some(value) = section.get(key) {
            *field = value.boolean()?;
        }
    }
    for (key, field) in [("mss", &mut tcp.mss), ("header", &mut tcp.header)] {
        if let Some(value) = section.get(key) {
            // At most 65,535, so it fits.
            *field = value.size(1..=65_535)? as u16;
        }
    }
    for (key, field) in [
        ("initial-window", &mut tcp.initial_window),
        ("initial-ssthresh", &mut tcp.initial_ssthresh),
    ] {
        if let Some(value) = section.get(key) {
            *field = value.small(1..=u32::MAX)?;
        }
    }
    if let Some(value) = section.get("slow-start-limit") {
        tcp.slow_start_limit = Some(value.small(1..=u32::MAX)?);
    }
    if let Some(value) = section.get("max-pacing-rate") {
        tcp.max_pacing_rate = Some(value.rate()?);
    }
    timeouts(&section, &mut tcp)?;
    if let Some(value) = section.get("reading") {
        let section = value.section()?;
        tcp.reading = Some(Reading {
            // At most 2^30, so it fits.
            bytes: section.need("bytes")?.size(1..=MAX_WINDOW)? as u32,
            every: section.need("every")?.positive_span()?,
        });
        section.finish()?;
    }
    if let Some(value) = section.get("kernel-tick") {
        tcp.kernel_tick = Some(value.positive_span()?);
    }
    if let Some(value) = section.get("delayed-ack") {
        tcp.delayed_ack = delayed_ack(&value)?;
    }
    if let Some(value) = section.get("receive-window") {
        tcp.receive_window = receive_window(&value)?;
    }
    section.done()?;
    tcp.check().map_err(|error| section.error(error))?;
    Ok(tcp)
}

fn algorithm(section: &Section<'_>, tcp: &mut TcpConfig) -> Result<(), ScenarioError> {
    let hystart = section.get("hystart");
    // The congestion control has two names, one of which is Linux's.
    let value = match (section.get("algorithm"), section.get("congestion")) {
        (Some(_), Some(value)) => return Err(value.error(Problem::Conflict("algorithm"))),
        (algorithm, congestion) => algorithm.or(congestion),
    };
    if let Some(value) = value {
        let before = tcp.algorithm;
        tcp.algorithm = value.choice(&[
            ("newreno", Algorithm::NewReno),
            ("cubic", Algorithm::Cubic { hystart: false }),
            ("dctcp", Algorithm::Dctcp),
            ("bbr", Algorithm::Bbr),
            ("fixed", Algorithm::Fixed),
        ])?;
        // The echo goes with the algorithm unless the file says otherwise.
        if tcp.algorithm == Algorithm::Dctcp {
            tcp.ecn = Ecn::Dctcp;
        } else if before == Algorithm::Dctcp {
            tcp.ecn = Ecn::Off;
        }
    }
    if let Some(value) = hystart {
        let Algorithm::Cubic { hystart } = &mut tcp.algorithm else {
            return Err(value.error(Problem::Conflict("an algorithm other than cubic")));
        };
        *hystart = value.boolean()?;
    }
    if let Some(value) = section.get("ecn") {
        tcp.ecn = value.choice(&[
            ("off", Ecn::Off),
            ("classic", Ecn::Classic),
            ("dctcp", Ecn::Dctcp),
        ])?;
    }
    Ok(())
}

fn loss(section: &Section<'_>, tcp: &mut TcpConfig) -> Result<(), ScenarioError> {
    if let Some(value) = section.get("loss-detection") {
        tcp.loss_detection = value.choice(&[
            ("rack", LossDetection::Rack),
            ("duplicate-acks", LossDetection::DuplicateAcks(3)),
            ("timeout-only", LossDetection::TimeoutOnly),
        ])?;
    }
    if let Some(value) = section.get("duplicate-ack-threshold") {
        let LossDetection::DuplicateAcks(threshold) = &mut tcp.loss_detection else {
            let other = "a loss-detection other than duplicate-acks";
            return Err(value.error(Problem::Conflict(other)));
        };
        *threshold = value.small(1..=u32::MAX)?;
    }
    Ok(())
}

fn timeouts(section: &Section<'_>, tcp: &mut TcpConfig) -> Result<(), ScenarioError> {
    for (key, field) in [
        ("rto-min", &mut tcp.rto_min),
        ("rto-max", &mut tcp.rto_max),
        ("rto-initial", &mut tcp.rto_initial),
    ] {
        if let Some(value) = section.get(key) {
            *field = value.positive_span()?;
        }
    }
    if let Some(value) = section.get("receiver-rto-min") {
        tcp.receiver_rto_min = Some(value.positive_span()?);
    }
    if let Some(value) = section.get("rto-estimator") {
        tcp.rto_estimator = value.choice(&[
            ("linux", RtoEstimator::Linux),
            ("rfc6298", RtoEstimator::Rfc6298),
        ])?;
    }
    Ok(())
}

fn delayed_ack(value: &Value<'_>) -> Result<DelayedAck, ScenarioError> {
    match value.string()? {
        "off" => Ok(DelayedAck::Off),
        "linux" => Ok(DelayedAck::Linux),
        _ => value
            .positive_span()
            .map(|time: Span| DelayedAck::Fixed(time)),
    }
}

fn receive_window(value: &Value<'_>) -> Result<ReceiveWindow, ScenarioError> {
    // At most 2^30, so it fits.
    let bytes = |value: Value<'_>| value.size(1..=MAX_WINDOW).map(|bytes| bytes as u32);
    if !value.is_table() {
        return bytes(value.clone()).map(ReceiveWindow::Fixed);
    }
    let section = value.section()?;
    let window = ReceiveWindow::Autotuned {
        initial: bytes(section.need("initial")?)?,
        max: bytes(section.need("max")?)?,
    };
    section.finish()?;
    Ok(window)
}
