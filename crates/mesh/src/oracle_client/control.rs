//! The oracle elsewhere, as the daemon's local API asks it.

use super::OracleClient;
use crate::service::Control;
use futures_util::future::BoxFuture;
use thalweg_wire::mesh::{
    ApiError, RevokeReply, RevokeRequest, StatusReply, TokenReply, TokenRequest,
};

impl Control for OracleClient {
    fn token(&self, request: TokenRequest) -> BoxFuture<'_, Result<TokenReply, ApiError>> {
        Box::pin(async move { Ok(Self::token(self, &request).await?) })
    }

    fn revoke(&self, request: RevokeRequest) -> BoxFuture<'_, Result<RevokeReply, ApiError>> {
        Box::pin(async move { Ok(Self::revoke(self, &request).await?) })
    }

    fn status(&self) -> BoxFuture<'_, Result<StatusReply, ApiError>> {
        Box::pin(async move { Ok(Self::status(self).await?) })
    }
}
