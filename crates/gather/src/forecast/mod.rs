//! The expected duration and traffic of a collection, before it begins.

mod direct;
mod outset;
#[cfg(test)]
mod tests;

use super::{Method, PriceList};
use serde::Serialize;
use thalweg_paths::overlay::Overlay;
use thalweg_plan::collection::{Fluid, Grid, PlanError, ProblemError, Timetable};
use thalweg_units::{ByteSize, Rate};
use thalweg_wire::mesh::Name;
use thiserror::Error;

/// What is planned with.
#[derive(Clone, Copy, Debug)]
pub struct Outset<'a> {
    /// Who takes part, and what is known of the legs.
    pub overlay: &'a Overlay,
    /// Bytes that are missing, by participant.
    pub amounts: &'a [ByteSize],
    /// How it is carried out.
    pub method: Method,
    /// Slot and unit of a timetable.
    pub grid: Grid,
    /// The most that this end takes.
    pub limit: Option<Rate>,
    /// What legs cost.
    pub prices: Option<&'a PriceList>,
    /// The most that it may cost, in the currency of the prices.
    pub budget: Option<f64>,
}

/// What a collection is expected to take.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Forecast {
    /// The method's name, as options write it.
    pub method: String,
    /// From the first byte asked for to the last one here; absent: some source has no measured
    /// way, so that nobody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub makespan_seconds: Option<f64>,
    /// No schedule over the measured legs is shorter: T* of the fluid plan; with a budget, none that
    /// costs no more. Where not all that is needed is measured, or only from below, what the limit of this
    /// end alone takes; absent: nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_seconds: Option<f64>,
    /// Some rates are lower bounds: it may well be sooner.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// Bytes that are to come.
    pub bytes: u64,
    /// What it costs by the prices; absent: none were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<f64>,
    /// What other makespans would cost at least, from the shortest to the cheapest; straight
    /// between two points. Empty without prices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<PricePoint>,
    /// T of a timetable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Its slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot_seconds: Option<f64>,
    /// Its data unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit_bytes: Option<u64>,
    /// Sources that no measured way leads from; their data is in no path below.
    pub unmeasured: Vec<Name>,
    /// Which data goes which way.
    pub paths: Vec<PlannedPath>,
}

/// Data of one source that goes one way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedPath {
    /// The source.
    pub source: Name,
    /// The hosts between it and here, nearest to the source first.
    pub via: Vec<Name>,
    /// How much.
    pub bytes: u64,
    /// On average over the whole makespan; absent: unmeasured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// In how many transfers of each leg; absent: it flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfers: Option<u64>,
}

/// A point of the time–price curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PricePoint {
    /// The makespan.
    pub seconds: f64,
    /// The least price of plans of rates that end by then.
    pub price: f64,
}

/// A forecast and the plan that it is of.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// For people and programs.
    pub forecast: Forecast,
    /// The rates; of the sources that have a measured way.
    pub fluid: Option<Fluid>,
    /// The timetable, if the method has one.
    pub timetable: Option<Timetable>,
}

/// There is no such plan.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ForecastError {
    /// A timetable needs rates.
    #[error(
        "no measured way leads from `{0}` to this host, or it takes less than a data unit a slot: \
         `--method fluid` works without rates, `--rates FILE` gives some"
    )]
    NoWay(Name),
    /// The planner's.
    #[error("{0}")]
    Plan(PlanError),
    /// Nothing that is this cheap.
    #[error("--max-cost {budget} is too little: {what} costs {least:.4}")]
    TooDear {
        /// What may be spent.
        budget: f64,
        /// Which plan is meant.
        what: String,
        /// Its price.
        least: f64,
    },
    /// The planner's, of prices.
    #[error("{0}")]
    Price(String),
    /// The planner's.
    #[error(transparent)]
    Problem(#[from] ProblemError),
}
