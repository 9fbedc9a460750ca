//! Reading the settings again while the daemon runs.

use crate::config::Change;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf};
use thalweg_wire::mesh::ApiError;
use utoipa::ToSchema;

/// Reads the settings again and applies what can be applied.
pub trait Reload: fmt::Debug + Send + Sync {
    /// Reads the settings, checks all of them, and applies those that can change while the node runs. After an error all
    /// former settings stay.
    fn reload(&self) -> BoxFuture<'_, Result<ReloadReply, ApiError>>;
}

/// What was found when the settings were read again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReloadReply {
    /// The file; none: there is no default path.
    #[schema(value_type = Option<String>)]
    pub file: Option<PathBuf>,
    /// The settings that were applied now, and those that wait for a restart.
    #[schema(value_type = Vec<Object>)]
    pub changes: Vec<Change>,
}

/// For daemons without a settings file.
#[derive(Clone, Copy, Debug)]
pub struct NoReload;

impl Reload for NoReload {
    fn reload(&self) -> BoxFuture<'_, Result<ReloadReply, ApiError>> {
        let message = "this daemon has no settings file".to_owned();
        Box::pin(async { Err(ApiError { code: "no_settings".to_owned(), message }) })
    }
}
