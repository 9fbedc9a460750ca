//! The expected duration and traffic of a collection before it begins.

mod direct;
mod planner;
#[cfg(test)]
mod tests;

use super::{Method, PriceList};
use serde::Serialize;
use thalweg_paths::overlay::Overlay;
use thalweg_plan::collection::{Fluid, Grid, PlanError, ProblemError, Timetable};
use thalweg_units::{ByteSize, Rate};
use thalweg_wire::mesh::Name;
use thiserror::Error;

/// The input of the forecast.
#[derive(Clone, Copy, Debug)]
pub struct ForecastInput<'a> {
    /// The participants, and the known rates and round trips of the legs between them.
    pub overlay: &'a Overlay,
    /// Missing bytes by participant.
    pub amounts: &'a [ByteSize],
    /// The method to carry it out.
    pub method: Method,
    /// Slot length and data unit of a timetable.
    pub grid: Grid,
    /// The maximum rate that this host receives.
    pub limit: Option<Rate>,
    /// The price of each leg.
    pub prices: Option<&'a PriceList>,
    /// The maximum price of the collection, in the currency of the prices.
    pub budget: Option<f64>,
}

/// The expected duration and traffic of a collection.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Forecast {
    /// The method's name, as options write it.
    pub method: String,
    /// The time from the first requested byte to the last received one; absent: some source has no measured path, so
    /// the duration is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub makespan_seconds: Option<f64>,
    /// A lower bound: no schedule over the measured legs is shorter (T* of the fluid plan), or, with a budget, none of
    /// that price or less. If some required rates are unmeasured or known only as lower bounds, it is the time that
    /// this host's ingress limit alone requires; absent: nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_seconds: Option<f64>,
    /// Some rates are lower bounds: the collection may end sooner.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// Bytes to receive.
    pub bytes: u64,
    /// The price; absent: no prices were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<f64>,
    /// The minimum price of other makespans, from the shortest to the cheapest; linear between two points. Empty
    /// without prices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<PricePoint>,
    /// The number of slots of a timetable (T).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// The slot length of the timetable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot_seconds: Option<f64>,
    /// The data unit of the timetable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit_bytes: Option<u64>,
    /// Sources without a measured path; their data is in no path below.
    pub unmeasured: Vec<Name>,
    /// The planned paths and their data.
    pub paths: Vec<PlannedPath>,
}

/// The part of a source's data that takes one path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedPath {
    pub source: Name,
    /// The hosts between the source and this host, nearest to the source first.
    pub via: Vec<Name>,
    /// The number of bytes.
    pub bytes: u64,
    /// The average rate over the whole makespan; absent: unmeasured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// The number of transfers on each leg; absent: the data flows continuously.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfers: Option<u64>,
}

/// A point of the time–price curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PricePoint {
    /// The makespan.
    pub seconds: f64,
    /// The minimum price of all fluid plans that end within this makespan.
    pub price: f64,
}

/// A forecast and the plan that it describes.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The forecast, for people and programs.
    pub forecast: Forecast,
    /// The fluid plan (rates) of the sources that have a measured path.
    pub fluid: Option<Fluid>,
    /// The timetable, if the method has one.
    pub timetable: Option<Timetable>,
}

/// A forecast is impossible.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ForecastError {
    /// A timetable needs rates, and a source has none.
    #[error(
        "no measured path leads from `{0}` to this host, or it carries less than one data unit \
         per slot: use `--method fluid`, which needs no rates, or give rates with `--rates FILE`"
    )]
    NoPath(Name),
    /// An error of the planner.
    #[error("{0}")]
    Plan(PlanError),
    /// No plan fits the budget.
    #[error("--max-cost {budget} is too low: {what} costs {least:.4}")]
    OverBudget {
        budget: f64,
        /// The plan that was tried.
        what: String,
        /// The price of that plan.
        least: f64,
    },
    /// An error of the price-constrained planner.
    #[error("{0}")]
    Price(String),
    /// An error in the planning problem.
    #[error(transparent)]
    Problem(#[from] ProblemError),
}
