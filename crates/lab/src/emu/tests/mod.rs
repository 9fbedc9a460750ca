//! Tests of the emulation through its public interface.

mod chance;
mod cross;
mod link;
mod model;
mod network;
mod record;

use super::{ClassId, Link};
use crate::topology::{LinkConfig, Queue};
use std::time::Duration;
use thalweg_units::{ByteSize, Rate, Time};

const KIND: ClassId = ClassId::OTHER;

fn us(us: u64) -> Time {
    Time::from_nanos(us * 1000)
}

fn ms(ms: u64) -> Time {
    us(ms * 1000)
}

/// A link with this rate, delay and queue in bytes.
fn config(mbps: f64, delay_ms: u64, queue: u64) -> LinkConfig {
    LinkConfig {
        rate: Some(Rate::from_mbps(mbps)),
        delay: Duration::from_millis(delay_ms),
        queue: Queue::Bytes(ByteSize::from_bytes(queue)),
        ..LinkConfig::default()
    }
}

fn link<P: Clone>(config: &LinkConfig) -> Link<P> {
    Link::new(config, 1, Time::ZERO)
}

/// The packets that have arrived by `now`: (arrival in ns, packet).
fn arrivals<P: Clone>(link: &mut Link<P>, now: Time) -> Vec<(u64, P)> {
    std::iter::from_fn(|| link.pop(now)).map(|a| (a.at.as_nanos(), a.packet)).collect()
}
