//! Resolves a written topology to dense indices.

use super::{
    CrossPlan, HostPlan, HostSpec, InterfacePlan, LinkPlan, LinkSpec, PathSpec, Resolved, Topology,
    TopologyError, classes, derive_seed,
    generate::Generated,
    paths::{Halves, Layout, Origin},
    text,
};
use indexmap::IndexMap;
use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, Ipv6Addr},
    time::Duration,
};

/// The most interfaces of a network: the path table has five bytes for each pair, 125 MB at this number.
const INTERFACES_TOTAL_MAX: usize = 5_000;
/// The most interfaces of a host: one byte of the address is the interface number, from 1.
const INTERFACES_MAX: usize = 254;
/// The longest label of a host name (RFC 1035 §2.3.4).
const NAME_MAX: usize = 63;
/// The smallest width of bins; the emulator's quantum allows no finer ones.
const BIN_MIN: Duration = Duration::from_millis(1);

/// The written and the generated parts merged.
struct Merged {
    hosts: IndexMap<String, HostSpec>,
    links: IndexMap<String, LinkSpec>,
    generated_paths: Vec<PathSpec>,
}

impl Topology {
    /// Expands the generator and all defaults, and checks that everything is consistent.
    ///
    /// Deterministic: the same topology gives the same result.
    ///
    /// # Errors
    /// [`TopologyError`]; the message says where the error is, what it is and what to write instead.
    pub fn resolve(&self) -> Result<Resolved, TopologyError> {
        self.check_settings()?;
        let merged = self.merge()?;
        let (hosts, interfaces) = plan_hosts(&merged.hosts)?;
        let (links, halves) = self.plan_links(&merged.links)?;
        let host_entries = hosts.iter().map(|h| (h.name.as_str(), h.interfaces.as_slice()));
        let mut layout = Layout::new(host_entries, &interfaces, &halves);
        for path in &merged.generated_paths {
            layout.add_path(path, Origin::Generated, "generate")?;
        }
        for (i, path) in self.paths.iter().enumerate() {
            let at = format!("path {} ({} to {})", i + 1, path.from, path.to);
            layout.add_path(path, Origin::Written, &at)?;
        }
        if let Some(default) = &self.default_path {
            layout.add_default_path(default)?;
        }
        let (paths, table) = layout.finish();
        let mut resolved = Resolved {
            seed: self.seed,
            congestion: self.congestion.clone(),
            bin: self.bin,
            hosts,
            interfaces,
            links,
            paths,
            table,
            cross: Vec::new(),
            classes: self.classes.clone(),
        };
        resolved.cross = self.plan_cross(&resolved)?;
        Ok(resolved)
    }

    fn check_settings(&self) -> Result<(), TopologyError> {
        if self.bin < BIN_MIN {
            let why = "must be at least 1 ms";
            return Err(TopologyError::value("bin", text::exact_duration(self.bin), why));
        }
        if let Some(name) = &self.congestion {
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if name.is_empty() || name.len() > 15 || !name.chars().all(word) {
                let why = "must be a congestion control algorithm of the kernel, such as \"cubic\"";
                return Err(TopologyError::value("congestion", name, why));
            }
        }
        classes::check(&self.classes)
    }

    /// Merges the written topology with the generated one. A written host or link overrides the generated one of the
    /// same name.
    fn merge(&self) -> Result<Merged, TopologyError> {
        let Generated { hosts, links, paths } = match &self.generate {
            Some(generate) => generate.expand(self.seed)?,
            None => Generated::default(),
        };
        let mut merged =
            Merged { hosts: self.hosts.clone(), links: self.links.clone(), generated_paths: paths };
        for (name, generated) in hosts {
            let host = merged.hosts.entry(name).or_default();
            host.interfaces = host.interfaces.or(generated.interfaces);
            host.names.extend(generated.names);
        }
        for (name, generated) in links {
            let link = match merged.links.get(&name) {
                Some(written) => generated.overlaid(written),
                None => generated,
            };
            merged.links.insert(name, link);
        }
        Ok(merged)
    }

    fn plan_links(
        &self,
        specs: &IndexMap<String, LinkSpec>,
    ) -> Result<(Vec<LinkPlan>, Halves), TopologyError> {
        let (mut links, mut halves) = (Vec::new(), Halves::new());
        for (name, spec) in specs {
            let key = format!("link.{name}");
            check_link_name(name)?;
            let (fwd, rev) = spec.halves(&key)?;
            let mut add = |name: String, config| {
                let seed = derive_seed(self.seed, &name);
                links.push(LinkPlan { name, config, seed });
                links.len() - 1
            };
            let pair = match rev {
                None => (add(name.clone(), fwd), None),
                Some(rev) => {
                    (add(format!("{name}.fwd"), fwd), Some(add(format!("{name}.rev"), rev)))
                }
            };
            halves.insert(name.clone(), pair);
        }
        Ok((links, halves))
    }

    fn plan_cross(&self, resolved: &Resolved) -> Result<Vec<CrossPlan>, TopologyError> {
        let mut plans = Vec::new();
        for (i, spec) in self.cross.iter().enumerate() {
            let at = format!("cross {}", i + 1);
            let config = spec.config(&at)?;
            let links = resolved.link_indices(&spec.link).map_err(|e| match e {
                TopologyError::Unknown { kind, name, nearest, .. } => {
                    TopologyError::Unknown { at: at.clone(), kind, name, nearest }
                }
                other => other,
            })?;
            for link in links {
                let label = format!("{at} on {}", resolved.links[link].name);
                let seed = derive_seed(self.seed, &label);
                plans.push(CrossPlan { link, config: config.clone(), seed });
            }
        }
        Ok(plans)
    }
}

fn plan_hosts(
    specs: &IndexMap<String, HostSpec>,
) -> Result<(Vec<HostPlan>, Vec<InterfacePlan>), TopologyError> {
    let (mut hosts, mut interfaces) = (Vec::new(), Vec::new());
    let mut taken = BTreeSet::new();
    for (host, (name, spec)) in specs.iter().enumerate() {
        check_host_name(name, spec, &mut taken)?;
        let n = spec.interfaces.unwrap_or(1);
        if !(1..=INTERFACES_MAX).contains(&n) {
            let why = format!("a host has 1 to {INTERFACES_MAX} interfaces");
            return Err(TopologyError::value(format!("host.{name}.interfaces"), n, why));
        }
        let first = interfaces.len();
        if first + n > INTERFACES_TOTAL_MAX {
            let why = format!("all hosts together have at most {INTERFACES_TOTAL_MAX} interfaces");
            return Err(TopologyError::value(format!("host.{name}.interfaces"), n, why));
        }
        interfaces.extend((0..n).map(|index| interface(host, index)));
        hosts.push(HostPlan {
            name: name.clone(),
            names: spec.names.clone(),
            interfaces: (first..first + n).collect(),
        });
    }
    Ok((hosts, interfaces))
}

/// The interface `index` of `host`, with its addresses. Both numbers were checked against their maxima, so the casts
/// are lossless.
fn interface(host: usize, index: usize) -> InterfacePlan {
    let (h, k) = ((host + 1) as u16, (index + 1) as u8);
    let [high, low] = h.to_be_bytes();
    InterfacePlan {
        host,
        index,
        v4: Ipv4Addr::new(10, k, high, low),
        v6: Ipv6Addr::new(0xfd54, u16::from(k), 0, 0, 0, 0, 0, h),
    }
}

fn check_host_name(
    name: &str,
    spec: &HostSpec,
    taken: &mut BTreeSet<String>,
) -> Result<(), TopologyError> {
    let label = |l: &str| {
        let inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
        (1..=NAME_MAX).contains(&l.len()) && l.chars().all(inner) && !l.starts_with('-')
    };
    let key = format!("host.{name}");
    if !label(name) {
        let why = "a host's name consists of letters, digits and hyphens, at most 63 characters";
        return Err(TopologyError::value(key, name, why));
    }
    for name in std::iter::once(name).chain(spec.names.iter().map(String::as_str)) {
        let an_address = name.parse::<std::net::IpAddr>().is_ok();
        if an_address || name == "localhost" || !name.split('.').all(label) {
            let why = "a name consists of labels of letters, digits and hyphens, joined by dots; it must not be an address";
            return Err(TopologyError::value(format!("{key}.names"), name, why));
        }
        if !taken.insert(name.to_ascii_lowercase()) {
            return Err(TopologyError::value(key, name, "is also the name of another host"));
        }
    }
    Ok(())
}

fn check_link_name(name: &str) -> Result<(), TopologyError> {
    let bad = |why| Err(TopologyError::value("link", name, why));
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c == '=' || c == ',') {
        return bad("a link's name must not contain blanks, commas or equals signs");
    }
    if name.ends_with(".fwd") || name.ends_with(".rev") {
        return bad("`.fwd` and `.rev` name the halves of a link; choose another name");
    }
    Ok(())
}
