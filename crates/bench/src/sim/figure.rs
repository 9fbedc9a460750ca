//! The figures and sections of the paper that the simulator can compute.

use anyhow::bail;
use clap::ValueEnum;
use std::fmt;
use thalweg_sim::{
    figures::{
        Report, Strategy, adaptive, budget, crowd, population, properties, rankings, relayed, sets,
    },
    input::Input,
};

/// A figure or section of UKAIRO, or one of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// §2.1, §2.2.1: how many paths gain, for how long, at what latency
    Properties,
    /// Fig. 1: random sets of detours (Eq. 2)
    #[value(name = "fig-1")]
    Fig1,
    /// Fig. 2: rankings
    #[value(name = "fig-2")]
    Fig2,
    /// Fig. 5: one client at a time, servers among the nodes
    #[value(name = "fig-5")]
    Fig5,
    /// Fig. 6: one client at a time, servers outside
    #[value(name = "fig-6")]
    Fig6,
    /// Fig. 7: adaptive selection
    #[value(name = "fig-7")]
    Fig7,
    /// Fig. 8: many clients at once
    #[value(name = "fig-8")]
    Fig8,
    /// Fig. 9: measurement schedules
    #[value(name = "fig-9")]
    Fig9,
    /// §4.4's open question: how detours affect hosts that use none
    Population,
}

/// The default number of draws: the paper's random sets in Fig. 1, and its sets of detours in Fig. 9.
const DRAWS: (u64, u64) = (1000, 4);
/// The number of outside servers in the paper's Fig. 6.
const OUTSIDE: usize = 100;

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}

impl Figure {
    /// The number of servers outside of the mesh that the figure needs.
    pub fn outside(self) -> usize {
        if self == Self::Fig6 { OUTSIDE } else { 0 }
    }

    /// Computes the figure.
    pub fn compute(
        self,
        input: &Input,
        seed: u64,
        draws: Option<u64>,
        only: Option<&str>,
    ) -> anyhow::Result<Report> {
        let takes_only = matches!(self, Self::Fig8 | Self::Fig9 | Self::Population);
        if let Some(name) = only.filter(|_| !takes_only) {
            bail!(
                "--only {name} can be used only with fig-8, fig-9 and population, not with {self}"
            );
        }
        let strategies = || strategies(only);
        Ok(match self {
            Self::Properties => properties::compute(input, seed),
            Self::Fig1 => sets::compute(input, seed, draws.unwrap_or(DRAWS.0)),
            Self::Fig2 => rankings::compute(input, seed),
            Self::Fig5 | Self::Fig6 => relayed::compute(input, seed),
            Self::Fig7 => adaptive::compute(input, seed),
            Self::Fig8 => crowd::compute(input, seed, &strategies()?),
            Self::Fig9 => {
                let arms = budget::named(only)?;
                budget::compute(input, seed, draws.unwrap_or(DRAWS.1), &arms)
            }
            Self::Population => population::compute(input, seed, &strategies()?),
        })
    }
}

fn strategies(only: Option<&str>) -> anyhow::Result<Vec<Strategy>> {
    match only {
        Some(name) => Ok(vec![name.parse()?]),
        None => Ok(Strategy::ALL.into_iter().filter(|one| *one != Strategy::Random).collect()),
    }
}
