//! A matrix: every pair of hosts has a link with its own rate and round-trip time.

use super::{Generated, Hosts, access_name, cloud, downstream_link, planetlab, upstream_link};
use crate::topology::{LinkSpec, Loss, Probability, Queue, TopologyError};
use serde::{Deserialize, Serialize};
use std::{fmt::Display, str::FromStr, time::Duration};
use thalweg_units::{Rate, parse_duration};

/// `kind = "matrix"`: a duplex link `a_b` for each pair of hosts, a before b.
///
/// Matrices are n×n from row to column, as text with units; the diagonal is ignored. The delay from i to j is half of
/// `rtt[i][j]`. Matrices are either written out or drawn (`synthetic`); then `rtt`, `rate` and `loss` are absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    /// A number (`h1`, `h2` …) or names; n of them.
    pub hosts: Hosts,
    /// `rate[i][j]`, bits per second; absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Vec<Vec<String>>>,
    /// `rtt[i][j]`; the delay from i to j is half of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Vec<Vec<String>>>,
    /// `loss[i][j]`, probability; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Vec<Vec<String>>>,
    /// The queue of every pair's link; default 1 BDP of 100 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
    /// A link `NAME.access` of every host, shared by all its pairs (forward is from the host); its delay adds to the
    /// round-trip time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<LinkSpec>,
    /// Draw the matrices, and access links unless given, from the topology's seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synthetic: Option<Synthetic>,
    /// Multiplies all drawn rates; default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
}

/// Models from which matrices are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Synthetic {
    /// University hosts on four continents, as UKAIRO measured them in 2010.
    Planetlab,
    /// Regions of three cloud providers, as measured in 2022.
    Cloud,
}

/// The properties of each pair in both directions, and the access link of each host.
pub(super) struct Drawn {
    /// `pairs[i][j]`, n×n, from i to j; the diagonal is not read.
    pub(super) pairs: Vec<Vec<LinkSpec>>,
    /// `access[i]`; forward is from the host.
    pub(super) access: Vec<Option<LinkSpec>>,
}

impl Matrix {
    /// A matrix of these hosts drawn from the PlanetLab model.
    pub fn synthetic(hosts: Hosts) -> Self {
        Self {
            hosts,
            rate: None,
            rtt: None,
            loss: None,
            queue: None,
            access: None,
            synthetic: Some(Synthetic::Planetlab),
            scale: None,
        }
    }

    pub(super) fn expand(&self, seed: u64) -> Result<Generated, TopologyError> {
        let names = self.hosts.names()?;
        let drawn = match self.synthetic {
            Some(synthetic) => self.draw(synthetic, names.len(), seed)?,
            None => self.read(names.len())?,
        };
        let mut out = Generated::default();
        for (name, drawn) in names.iter().zip(&drawn.access) {
            out.host(name);
            if let Some(access) = self.access.as_ref().or(drawn.as_ref()) {
                out.link(access_name(name), access);
            }
        }
        for i in 0..names.len() {
            for j in i + 1..names.len() {
                let (a, b) = (&names[i], &names[j]);
                let link = self.pair(&drawn.pairs[i][j], &drawn.pairs[j][i]);
                out.link(format!("{a}_{b}"), &link);
                out.path(a, b, route(&out, a, b));
            }
        }
        Ok(out)
    }

    fn pair(&self, there: &LinkSpec, back: &LinkSpec) -> LinkSpec {
        LinkSpec { queue: self.queue, rev: Some(Box::new(back.clone())), ..there.clone() }
    }

    fn draw(&self, synthetic: Synthetic, n: usize, seed: u64) -> Result<Drawn, TopologyError> {
        let written = [("rate", &self.rate), ("rtt", &self.rtt), ("loss", &self.loss)];
        if let Some((key, _)) = written.iter().find(|(_, m)| m.is_some()) {
            let why = format!("`synthetic` draws `{key}`; omit one of them");
            return Err(TopologyError::conflict("generate", why));
        }
        let scale = self.scale.unwrap_or(1.0);
        if !(1e-3..=1e3).contains(&scale) {
            return Err(TopologyError::value("generate.scale", scale, "must be 0.001 to 1000"));
        }
        match synthetic {
            Synthetic::Planetlab => Ok(planetlab::draw(n, seed, scale)),
            Synthetic::Cloud => cloud::draw(n, seed, scale),
        }
    }

    fn read(&self, n: usize) -> Result<Drawn, TopologyError> {
        let Some(rtt) = &self.rtt else {
            let why = "give `rtt` (and `rate`), or `synthetic = \"planetlab\"` or `\"cloud\"`";
            return Err(TopologyError::conflict("generate", why));
        };
        let rtt = cells(n, "rtt", rtt, parse_duration)?;
        let rate = self.rate.as_ref().map(|m| cells(n, "rate", m, Rate::from_str)).transpose()?;
        let loss = self.loss.as_ref().map(|m| cells(n, "loss", m, Probability::from_str));
        let loss = loss.transpose()?;
        let link = |i: usize, j: usize| LinkSpec {
            rate: rate.as_ref().and_then(|m| m[i][j]),
            delay: Some(rtt[i][j].unwrap_or(Duration::ZERO) / 2),
            loss: loss.as_ref().and_then(|m| m[i][j]).map(Loss::Random),
            ..LinkSpec::default()
        };
        let pairs = (0..n).map(|i| (0..n).map(|j| link(i, j)).collect()).collect();
        Ok(Drawn { pairs, access: vec![None; n] })
    }
}

fn route(out: &Generated, a: &str, b: &str) -> Vec<String> {
    let middle = format!("{a}_{b}.fwd");
    if out.links.contains_key(&access_name(b)) || out.links.contains_key(&access_name(a)) {
        vec![upstream_link(a), middle, downstream_link(b)]
    } else {
        vec![middle]
    }
}

/// Parses an n×n matrix of text. The diagonal becomes `None`.
fn cells<T, E: Display>(
    n: usize,
    key: &str,
    matrix: &[Vec<String>],
    read: impl Fn(&str) -> Result<T, E>,
) -> Result<Vec<Vec<Option<T>>>, TopologyError> {
    let cell = |i: usize, j: usize| {
        let Some(text) = matrix.get(i).and_then(|row| row.get(j)) else {
            let why = format!("must have {n} rows of {n} values; row {i} lacks column {j}");
            return Err(TopologyError::conflict(format!("generate.{key}"), why));
        };
        if i == j {
            return Ok(None);
        }
        let at = format!("generate.{key}[{i}][{j}]");
        read(text).map(Some).map_err(|e| TopologyError::value(at, text, e.to_string()))
    };
    if matrix.len() > n || matrix.iter().any(|row| row.len() > n) {
        let why = format!("must have {n} rows of {n} values, one per host; it has more");
        return Err(TopologyError::conflict(format!("generate.{key}"), why));
    }
    (0..n).map(|i| (0..n).map(|j| cell(i, j)).collect()).collect()
}
