//! Placeholders in a plan's texts, such as `{url}` and `{ip.server}`.
//!
//! A value has two faces: the real one, and the one that records show, so that no path of this machine gets into a
//! committed result.

use crate::error::{ExperimentError, Result};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// The maximum depth of references between values; deeper ones count as a cycle.
const DEPTH_MAX: u32 = 8;

/// The value of a placeholder.
#[derive(Clone, Debug)]
enum Value {
    /// A text as used and as shown.
    Text { real: String, shown: String },
    /// Any number of arguments, each of which may contain placeholders.
    List(Vec<String>),
}

/// The face of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextForm {
    /// The text that programs get.
    Real,
    /// The text that records show.
    Shown,
}

/// The values of placeholders, by name.
#[derive(Clone, Debug, Default)]
pub struct Values(BTreeMap<String, Value>);

impl Values {
    /// Sets a text, which may contain placeholders. Replaces a value of the same name.
    pub fn set(&mut self, name: impl Into<String>, text: impl Into<String>) {
        let real = text.into();
        self.0.insert(name.into(), Value::Text { shown: real.clone(), real });
    }

    /// Sets a path of this machine, which records show as `shown`.
    pub fn set_path(&mut self, name: impl Into<String>, path: &Path, shown: impl Into<String>) {
        let real = path.display().to_string();
        self.0.insert(name.into(), Value::Text { real, shown: shown.into() });
    }

    /// Sets a list of arguments.
    pub fn set_list(&mut self, name: impl Into<String>, list: Vec<String>) {
        self.0.insert(name.into(), Value::List(list));
    }

    /// Sets a value from a TOML scalar or an array of scalars.
    ///
    /// # Errors
    /// If it is a table, a date, or a nested array.
    pub fn set_toml(&mut self, name: &str, value: &toml::Value) -> Result<()> {
        let bad = || ExperimentError::value(name, "must be a string, a number, or a list of them");
        match value {
            toml::Value::Array(list) => {
                let list = list.iter().map(scalar).collect::<Option<_>>().ok_or_else(bad)?;
                self.set_list(name, list);
            }
            other => self.set(name, scalar(other).ok_or_else(bad)?),
        }
        Ok(())
    }

    /// The names of all values.
    pub fn names(&self) -> BTreeSet<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    /// `text` with its placeholders replaced.
    ///
    /// # Errors
    /// If a name is unknown, a list is used within a text, or values refer to each other in a cycle.
    pub fn render(&self, text: &str, face: TextForm) -> Result<String> {
        self.expand(text, face, 0)
    }

    /// `args` with their placeholders replaced. An argument that consists of the placeholder of a list is replaced by
    /// the arguments of the list.
    ///
    /// # Errors
    /// As for [`render`](Self::render).
    pub fn render_args(&self, args: &[String], face: TextForm) -> Result<Vec<String>> {
        let mut out = Vec::with_capacity(args.len());
        self.splice(args, face, 0, &mut out)?;
        Ok(out)
    }

    fn splice(
        &self,
        args: &[String],
        face: TextForm,
        depth: u32,
        out: &mut Vec<String>,
    ) -> Result<()> {
        for arg in args {
            match single_placeholder(arg).and_then(|name| self.0.get(name)) {
                Some(Value::List(_)) if depth == DEPTH_MAX => return Err(cycle_error(arg)),
                Some(Value::List(list)) => self.splice(list, face, depth + 1, out)?,
                _ => out.push(self.expand(arg, face, depth)?),
            }
        }
        Ok(())
    }

    /// Replaces the placeholders in every text within `value`.
    ///
    /// # Errors
    /// As for [`render`](Self::render).
    pub fn render_toml(&self, value: &mut toml::Value) -> Result<()> {
        match value {
            toml::Value::String(text) => *text = self.render(text, TextForm::Real)?,
            toml::Value::Array(list) => list.iter_mut().try_for_each(|v| self.render_toml(v))?,
            toml::Value::Table(table) => {
                table.iter_mut().try_for_each(|(_, v)| self.render_toml(v))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn expand(&self, text: &str, face: TextForm, depth: u32) -> Result<String> {
        if depth > DEPTH_MAX {
            return Err(cycle_error(text));
        }
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, name, after)) = next_placeholder(rest) {
            out.push_str(before);
            out.push_str(&self.lookup(text, name, face, depth)?);
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }

    fn lookup(&self, text: &str, name: &str, face: TextForm, depth: u32) -> Result<String> {
        match self.0.get(name) {
            Some(Value::Text { real, shown }) => {
                self.expand(if face == TextForm::Real { real } else { shown }, face, depth + 1)
            }
            Some(Value::List(_)) => Err(ExperimentError::value(
                text,
                format!("{{{name}}} is a list and must be a separate argument"),
            )),
            None => Err(ExperimentError::value(
                text,
                format!(
                    "unknown placeholder {{{name}}}; available: {}",
                    self.names().into_iter().collect::<Vec<_>>().join(", ")
                ),
            )),
        }
    }
}

fn cycle_error(text: &str) -> ExperimentError {
    ExperimentError::value(text, "its placeholders refer to each other in a cycle")
}

fn scalar(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(s) => Some(s.clone()),
        toml::Value::Integer(i) => Some(i.to_string()),
        toml::Value::Float(f) => Some(f.to_string()),
        toml::Value::Boolean(b) => Some(b.to_string()),
        _ => None,
    }
}

/// The name, if `arg` is a single placeholder.
fn single_placeholder(arg: &str) -> Option<&str> {
    match next_placeholder(arg)? {
        ("", name, "") => Some(name),
        _ => None,
    }
}

/// Splits `text` at the first placeholder into the text before it, its name, and the text after it.
///
/// A placeholder is `{` letter [letters digits _ . -] `}`; `${…}` (shell), `%{…}` (curl) and any other brace (JSON, a
/// server's configuration) are plain text.
pub fn next_placeholder(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    while let Some(open) = text[from..].find('{').map(|at| at + from) {
        let inner = &text[open + 1..];
        let end = inner.find(|c: char| !(c.is_ascii_alphanumeric() || "_.-".contains(c)));
        let named = inner.starts_with(|c: char| c.is_ascii_alphabetic());
        let foreign = text[..open].ends_with(['$', '%']);
        match end {
            Some(end) if named && !foreign && inner[end..].starts_with('}') => {
                return Some((&text[..open], &inner[..end], &inner[end + 1..]));
            }
            _ => from = open + 1,
        }
    }
    None
}

/// The names of all placeholders in `text`.
pub fn placeholders(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some((_, name, after)) = next_placeholder(rest) {
        names.push(name);
        rest = after;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Values {
        let mut v = Values::default();
        v.set("host", "server");
        v.set("url", "http://{host}/x");
        v.set_path("scratch", Path::new("/tmp/abc"), "SCRATCH");
        v.set_list("flags", vec!["--at".into(), "{host}".into()]);
        v.set_list("none", vec![]);
        v
    }

    #[test]
    fn values_are_nested_and_have_two_faces() {
        let v = values();
        assert_eq!(
            v.render("{url} {scratch}", TextForm::Real).unwrap(),
            "http://server/x /tmp/abc"
        );
        assert_eq!(v.render("{scratch}/o", TextForm::Shown).unwrap(), "SCRATCH/o");
    }

    #[test]
    fn lists_are_spliced_only_into_arguments() {
        let v = values();
        let args = ["a", "{flags}", "{none}", "{host}"].map(String::from);
        let got = v.render_args(&args, TextForm::Real).unwrap();
        assert_eq!(got, ["a", "--at", "server", "server"]);
        assert!(v.render("x{flags}", TextForm::Real).is_err());
    }

    #[test]
    fn other_braces_are_plain_text() {
        let text = "http { server { listen 80; } } ${HOME} {\"a\":{}} %{json}";
        assert_eq!(values().render(text, TextForm::Real).unwrap(), text);
    }

    #[test]
    fn unknown_names_and_cycles_are_rejected() {
        let mut v = values();
        let error = v.render("{hots}", TextForm::Real).unwrap_err().to_string();
        assert!(error.contains("{hots}") && error.contains("host"), "{error}");
        v.set("a", "{b}");
        v.set("b", "{a}");
        assert!(v.render("{a}", TextForm::Real).unwrap_err().to_string().contains("cycle"));
        v.set_list("l", vec!["{m}".into()]);
        v.set_list("m", vec!["x".into(), "{l}".into()]);
        v.set_list("self", vec!["{self}".into()]);
        for name in ["{l}", "{self}"] {
            let error = v.render_args(&[name.into()], TextForm::Real).unwrap_err().to_string();
            assert!(error.contains("cycle"), "{error}");
        }
    }
}
