//! The networks on which figures are computed.

use super::grid::{self, Columns};
use anyhow::Context;
use std::{
    convert::Infallible,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};
use thalweg_sim::{input::Input, matrix::Matrix, planetlab::Parameters};

/// A network by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkName {
    /// The network of 201 synthetic sites.
    PlanetLab,
    /// The network of 71 synthetic regions, for use where the real grid is not available.
    Cloud,
    /// The real grid of November 2022.
    Grid,
    /// The real grid, planned with January 2022 and evaluated with November 2022.
    GridPredicts,
    /// A CSV file.
    File(PathBuf),
}

impl FromStr for NetworkName {
    type Err = Infallible;
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "planetlab" => Self::PlanetLab,
            "cloud" => Self::Cloud,
            "grid" => Self::Grid,
            "grid-earlier-predicts-later" => Self::GridPredicts,
            file => Self::File(file.into()),
        })
    }
}

impl fmt::Display for NetworkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PlanetLab => f.pad("planetlab"),
            Self::Cloud => f.pad("cloud"),
            Self::Grid => f.pad("grid"),
            Self::GridPredicts => f.pad("grid-earlier-predicts-later"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// The assumed variation of real rates from one download to the next, which was not measured. The two runs of the grid
/// differ by more, which includes ten months of drift.
const NOISE: f64 = 0.1;

/// A network that is read once and drawn for each seed.
pub enum Network {
    /// A generated network.
    Synthetic(Box<Parameters>),
    /// Measured rates for planning and for evaluation (Mbit/s), and round-trip times (ms).
    Measured([Matrix; 3]),
}

impl Network {
    /// The network of this seed; generated networks have `outside` servers outside of the mesh.
    pub fn input(&self, seed: u64, outside: usize) -> Input {
        match self {
            Self::Synthetic(parameters) => {
                Input::from_planetlab(Parameters { outside, ..(**parameters).clone() }, seed)
            }
            Self::Measured([planned, judged, rtt]) => {
                let [planned, judged, rtt] = [planned, judged, rtt].map(Clone::clone);
                Input::from_matrices(planned, judged, rtt, NOISE, seed)
            }
        }
    }
}

/// Opens a network; files of the grid are looked for in `data`.
///
/// # Errors
/// When a file is missing or invalid.
pub fn open(source: &NetworkName, data: Option<&Path>) -> anyhow::Result<Network> {
    let (file, columns) = match source {
        NetworkName::PlanetLab => return Ok(Network::Synthetic(Box::default())),
        NetworkName::Cloud => return Ok(Network::Synthetic(Box::new(Parameters::cloud()))),
        NetworkName::Grid => (grid_file(source, data)?, Columns::GRID),
        NetworkName::GridPredicts => (grid_file(source, data)?, Columns::GRID_PREDICTS),
        NetworkName::File(file) => (file.clone(), Columns::FILE),
    };
    Ok(Network::Measured(grid::read(&file, &columns)?))
}

fn grid_file(source: &NetworkName, data: Option<&Path>) -> anyhow::Result<PathBuf> {
    let data = data.with_context(|| {
        format!(
            "skipped: the input {source} needs cloud-grid.csv; give its directory with --data or \
             THALWEG_DATA, or use the similar synthetic input cloud"
        )
    })?;
    Ok(data.join("cloud-grid.csv"))
}
