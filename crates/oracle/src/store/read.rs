//! Queries, for use inside and outside a transaction.

use super::{
    KeyRow, MeshRow, TokenRow,
    row::{self, nanos},
};
use data_encoding::HEXLOWER;
use sqlx::AnyConnection;
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::mesh::{Member, Name};

type Result<T> = sqlx::Result<T>;

pub(super) async fn mesh(db: &mut AnyConnection) -> Result<Option<MeshRow>> {
    let statement = "SELECT mesh, version, rules, signed FROM mesh WHERE id = 1";
    let found = sqlx::query(statement).fetch_optional(db).await?;
    found.as_ref().map(row::mesh).transpose()
}

pub(super) async fn version(db: &mut AnyConnection) -> Result<Option<u64>> {
    let found = sqlx::query("SELECT version FROM mesh WHERE id = 1").fetch_optional(db).await?;
    found.as_ref().map(row::version).transpose()
}

/// All members, sorted by name. Sorted here, because databases differ in how they compare text.
pub(super) async fn members(db: &mut AnyConnection) -> Result<Vec<Member>> {
    let statement = "SELECT name, node, client, addresses, roles, tags FROM members";
    let found = sqlx::query(statement).fetch_all(db).await?;
    let mut members = found.iter().map(row::member).collect::<Result<Vec<_>>>()?;
    members.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(members)
}

pub(super) async fn token(db: &mut AnyConnection, hash: &[u8; 32]) -> Result<Option<TokenRow>> {
    let statement = "SELECT roles, tags, name, expires, maker, voided, used_by \
                     FROM tokens WHERE hash = $1";
    let found = sqlx::query(statement).bind(HEXLOWER.encode(hash)).fetch_optional(db).await?;
    found.as_ref().map(row::token).transpose()
}

pub(super) async fn key(db: &mut AnyConnection, key: &NodeId) -> Result<Option<KeyRow>> {
    let statement = "SELECT name, revoked FROM keys WHERE key = $1";
    let found = sqlx::query(statement).bind(key.to_string()).fetch_optional(db).await?;
    found.as_ref().map(row::key).transpose()
}

/// The most recently revoked key of a name.
pub(super) async fn revoked(db: &mut AnyConnection, name: &Name) -> Result<Option<KeyRow>> {
    let statement = "SELECT name, revoked FROM keys \
                     WHERE name = $1 AND revoked IS NOT NULL ORDER BY revoked DESC LIMIT 1";
    let found = sqlx::query(statement).bind(name.as_str()).fetch_optional(db).await?;
    found.as_ref().map(row::key).transpose()
}

pub(super) async fn open_tokens(db: &mut AnyConnection, now: WallTime) -> Result<u64> {
    let statement = "SELECT COUNT(*) FROM tokens \
                     WHERE used_by IS NULL AND voided IS NULL AND expires > $1";
    let count: i64 = sqlx::query_scalar(statement).bind(nanos(now)).fetch_one(db).await?;
    Ok(u64::try_from(count).unwrap_or(0))
}
