//! The routes of interfaces: what they do, and how running processes may use them. The changes are those of the
//! subcommands of `thalweg interfaces`, and last until the processes end.

use super::{
    Api,
    error::{ApiRefusal, ErrorBody, JsonBody},
    node::{Document, json},
};
use crate::config::{
    InterfaceRuleSection, change_policy, parse_cap, parse_price, parse_rate_limit,
};
use axum::{
    extract::{Path, State, rejection::PathRejection},
    http::StatusCode,
    response::Response,
};
use serde::Deserialize;
use std::sync::Arc;
use thalweg_uplinks::interfaces::{Change, ConnectionMethod, PolicyChange, Tier};
use utoipa::ToSchema;

/// The methods by which connections are assigned.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
#[allow(dead_code, reason = "only describes texts")]
pub enum ScheduleShape {
    OnlyOne,
    RoundRobin,
    WeightedRoundRobin,
    MaximumThroughput,
}

/// When an interface is used.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
#[allow(dead_code, reason = "only describes texts")]
pub enum TierShape {
    Primary,
    Secondary,
    Backup,
    Never,
}

/// Changes of how processes assign connections to interfaces; what is absent stays.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct InterfaceSettingsRequest {
    /// How the interface of the next connection is chosen.
    #[schema(value_type = Option<ScheduleShape>)]
    schedule: Option<ConnectionMethod>,
    /// How long a destination stays on its interface after its last connection, e.g. `1 min`; `0 s`: not at all.
    #[schema(example = "1 min")]
    affinity: Option<String>,
    /// Whether connections to hosts in this host's own networks are assigned too.
    near: Option<bool>,
}

impl InterfaceSettingsRequest {
    fn changes(&self) -> Result<Vec<Change>, String> {
        let affinity = self.affinity.as_deref().map(thalweg_units::parse_duration).transpose();
        let affinity = affinity.map_err(|e| format!("`affinity`: {e}"))?;
        let changes = [
            self.schedule.map(Change::Schedule),
            affinity.map(Change::Affinity),
            self.near.map(Change::Near),
        ];
        let changes: Vec<Change> = changes.into_iter().flatten().collect();
        if changes.is_empty() {
            return Err("this changes nothing: give `schedule`, `affinity` or `near`".to_owned());
        }
        Ok(changes)
    }
}

/// Changes of how an interface may be used; what is absent stays.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyRequest {
    #[schema(value_type = Option<TierShape>)]
    tier: Option<Tier>,
    /// The most it may carry, both directions together, or `none`.
    #[schema(example = "20 Mbit/s")]
    rate_limit: Option<String>,
    /// The most it may carry in a month, both directions together, or `none`.
    #[schema(example = "10 GB")]
    cap: Option<String>,
    /// The day of the month on which the cap starts anew.
    #[schema(minimum = 1, maximum = 31)]
    reset_day: Option<u8>,
    /// Whether its traffic costs money: then no probes and no duplicates are sent over it.
    metered: Option<bool>,
    /// Whether probes and duplicates are allowed although it is metered.
    spend: Option<bool>,
    /// What its traffic costs, in any currency, or `none`.
    #[schema(example = "5 / GB")]
    price: Option<String>,
    /// Whether it is used although the default route is a tunnel (a VPN), which it then bypasses.
    beside_tunnel: Option<bool>,
}

impl PolicyRequest {
    fn change(&self, interface: String) -> Result<Change, String> {
        fn read<T>(
            name: &str,
            text: Option<&String>,
            parse: fn(&str) -> Result<T, String>,
        ) -> Result<Option<T>, String> {
            text.map(|text| parse(text)).transpose().map_err(|why| format!("`{name}`: {why}"))
        }
        let change = PolicyChange {
            name: interface,
            tier: self.tier,
            rate_limit: read("rate_limit", self.rate_limit.as_ref(), parse_rate_limit)?,
            cap: read("cap", self.cap.as_ref(), parse_cap)?,
            reset_day: self.reset_day,
            metered: self.metered,
            spend: self.spend,
            price: read("price", self.price.as_ref(), parse_price)?.map(|p| p.per_gigabyte()),
            beside_tunnel: self.beside_tunnel,
        };
        let nothing = "this changes nothing: give at least one field, e.g. `tier`";
        change_policy(change)?.ok_or_else(|| nothing.to_owned())
    }
}

/// A rule for programs, ports or destinations, with exactly one of `only`, `prefer` and `avoid`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RuleRequest {
    /// The program's name; a final `*` matches any ending.
    process: Option<String>,
    /// The destination's port.
    port: Option<u16>,
    /// The destination's name or address; `*.example.org` matches all names below it.
    destination: Option<String>,
    /// Use only these interfaces.
    only: Vec<String>,
    /// Use these interfaces first.
    prefer: Vec<String>,
    /// Do not use these interfaces.
    avoid: Vec<String>,
    /// The rule's number, from 1; the first rule that matches applies. Absent: the last.
    #[schema(minimum = 1)]
    at: Option<u32>,
}

impl RuleRequest {
    fn change(self) -> Result<Change, String> {
        let Self { process, port, destination, only, prefer, avoid, at } = self;
        let rule = InterfaceRuleSection { process, port, destination, only, prefer, avoid };
        Ok(Change::Rule { at: at.map(|at| at as usize), rule: rule.checked()? })
    }
}

/// Show the interfaces of the node's host
///
/// The document of `thalweg interfaces status --json`. It is at most a second old.
#[utoipa::path(get, path = "/v1/interfaces", operation_id = "show_interfaces", tag = "interfaces", responses(
    (status = 200, description = "For each process its interfaces and connections", body = Document),
    (status = 404, description = "It cannot be read (`no_interfaces`)", body = ErrorBody),
))]
pub async fn interfaces(State(api): State<Arc<Api>>) -> Result<Response, ApiRefusal> {
    Ok(json(api.documents.interfaces().await?))
}

/// Makes the changes in all processes. Returns the document of interfaces afterwards.
async fn change(api: &Api, changes: Result<Vec<Change>, String>) -> Result<Response, ApiRefusal> {
    let refuse = |why| ApiRefusal::new(StatusCode::BAD_REQUEST, "bad_request", why);
    Ok(json(api.documents.change_interfaces(changes.map_err(refuse)?).await?))
}

/// Change how running processes assign connections to interfaces
///
/// As `thalweg interfaces schedule` and `set`: in all running `thalweg` processes of this user, until they end.
#[utoipa::path(put, path = "/v1/interfaces/settings", operation_id = "set_interface_settings", tag = "interfaces",
    request_body = InterfaceSettingsRequest,
    responses(
        (status = 200, description = "The interfaces afterwards", body = Document),
        (status = 400, description = "Nothing is changed, or a value is invalid", body = ErrorBody),
        (status = 404, description = "No process runs (`no_process`)", body = ErrorBody),
        (status = 409, description = "A process refused (`not_changed`)", body = ErrorBody),
    ))]
pub async fn set_settings(
    State(api): State<Arc<Api>>,
    JsonBody(request): JsonBody<InterfaceSettingsRequest>,
) -> Result<Response, ApiRefusal> {
    change(&api, request.changes()).await
}

/// Change how running processes may use an interface
///
/// As `thalweg interfaces allow`: in all running `thalweg` processes of this user, until they end. The interface need
/// not exist yet.
#[utoipa::path(put, path = "/v1/interfaces/{name}/policy", operation_id = "set_interface_policy", tag = "interfaces",
    params(("name" = String, Path, description = "The interface's name, e.g. `eth0`", max_length = 15)),
    request_body = PolicyRequest,
    responses(
        (status = 200, description = "The interfaces afterwards", body = Document),
        (status = 400, description = "Nothing is changed, or a value is invalid", body = ErrorBody),
        (status = 404, description = "No process runs (`no_process`)", body = ErrorBody),
        (status = 409, description = "A process refused (`not_changed`)", body = ErrorBody),
    ))]
pub async fn set_policy(
    State(api): State<Arc<Api>>,
    name: Result<Path<String>, PathRejection>,
    JsonBody(request): JsonBody<PolicyRequest>,
) -> Result<Response, ApiRefusal> {
    let name = name.map_err(|e| ApiRefusal::new(e.status(), "bad_request", e.body_text()))?;
    change(&api, request.change(name.0).map(|change| vec![change])).await
}

/// Add a rule for programs, ports or destinations
///
/// As `thalweg interfaces rule`: in all running `thalweg` processes of this user, until they end.
#[utoipa::path(post, path = "/v1/interfaces/rules", operation_id = "add_interface_rule", tag = "interfaces",
    request_body(
        content = RuleRequest,
        example = json!({ "process": "zoom*", "only": ["eth0"] }),
    ),
    responses(
        (status = 200, description = "The interfaces afterwards", body = Document),
        (status = 400, description = "The rule is invalid", body = ErrorBody),
        (status = 404, description = "No process runs (`no_process`)", body = ErrorBody),
        (status = 409, description = "A process refused (`not_changed`)", body = ErrorBody),
    ))]
pub async fn add_rule(
    State(api): State<Arc<Api>>,
    JsonBody(request): JsonBody<RuleRequest>,
) -> Result<Response, ApiRefusal> {
    change(&api, request.change().map(|change| vec![change])).await
}

/// Remove a rule
///
/// As `thalweg interfaces rule --remove`.
#[utoipa::path(delete, path = "/v1/interfaces/rules/{number}", operation_id = "remove_interface_rule", tag = "interfaces",
    params(("number" = u32, Path, description = "The rule's number, from 1", minimum = 1)),
    responses(
        (status = 200, description = "The interfaces afterwards", body = Document),
        (status = 404, description = "This is no number (`no_rule`), or no process runs (`no_process`)",
            body = ErrorBody),
        (status = 409, description = "A process has no such rule (`not_changed`)", body = ErrorBody),
    ))]
pub async fn remove_rule(
    State(api): State<Arc<Api>>,
    number: Result<Path<u32>, PathRejection>,
) -> Result<Response, ApiRefusal> {
    let message = "rules have numbers, from 1; `GET /v1/interfaces` lists them";
    let Path(number) = number.map_err(|_| ApiRefusal::missing("no_rule", message))?;
    change(&api, Ok(vec![Change::Unrule(number as usize)])).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use thalweg_units::{ByteSize, Rate};

    fn policy(body: serde_json::Value) -> Result<Change, String> {
        serde_json::from_value::<PolicyRequest>(body).unwrap().change("lte0".to_owned())
    }

    #[test]
    fn a_policy_is_written_as_on_the_command_line() {
        let change = policy(json!({
            "tier": "backup", "rate_limit": "none", "cap": "10 GB", "reset_day": 5, "price": "5 / GB",
        }));
        let expected = PolicyChange {
            name: "lte0".to_owned(),
            tier: Some(Tier::Backup),
            rate_limit: Some(Rate::ZERO),
            cap: Some(ByteSize::from_bytes(10_000_000_000)),
            reset_day: Some(5),
            price: Some(5.0),
            ..PolicyChange::default()
        };
        assert_eq!(change.unwrap(), Change::Policy(expected));
        for (body, why) in [
            (json!({}), "changes nothing"),
            (json!({ "rate_limit": "0 bit/s" }), "`rate_limit`: at a rate of 0"),
            (json!({ "rate_limit": "20" }), "`rate_limit`"),
            (json!({ "cap": "0 B" }), "`cap`: with a cap of 0"),
            (json!({ "price": "-1 / GB" }), "`price`"),
            (json!({ "reset_day": 32 }), "from 1 to 31"),
        ] {
            let refused = policy(body.clone()).unwrap_err();
            assert!(refused.contains(why), "{body}: {refused}");
        }
    }

    #[test]
    fn settings_become_changes_in_order() {
        let body = json!({ "near": true, "schedule": "round-robin", "affinity": "1 min" });
        let request: InterfaceSettingsRequest = serde_json::from_value(body).unwrap();
        let minute = std::time::Duration::from_secs(60);
        let expected = vec![
            Change::Schedule(ConnectionMethod::RoundRobin),
            Change::Affinity(minute),
            Change::Near(true),
        ];
        assert_eq!(request.changes().unwrap(), expected);
        assert!(InterfaceSettingsRequest::default().changes().is_err());
    }
}
