//! Values as text with their unit, and the errors if the unit is missing.

use super::{ApiListen, DatabaseUrl};
use ipnet::IpNet;
use serde::{Deserialize, Deserializer, de};
use std::{fmt, marker::PhantomData, net::SocketAddr, time::Duration};
use thalweg_units::{ByteSize, NodeId, Rate, WallTime, parse_duration};
use thalweg_uplinks::interfaces::ProbeServer;
use thalweg_wire::mesh::MemberPattern;
use thalweg_wire::{
    bistro::parse_date,
    mesh::{Name, PortRange},
};

/// A type whose values the settings write as text.
pub(super) trait Text: Sized {
    /// What is expected, with an example.
    const EXPECTED: &'static str;

    /// Parses the text; the error says what is wrong and gives an example.
    fn read(text: &str) -> Result<Self, String>;

    /// Converts a plain number, if that makes sense.
    fn from_number(_: i64) -> Option<Self> {
        None
    }
}

macro_rules! text {
    ($type:ty, $expected:literal, $read:expr) => {
        impl Text for $type {
            const EXPECTED: &'static str = $expected;
            fn read(text: &str) -> Result<Self, String> {
                $read(text).map_err(|e| e.to_string())
            }
        }
    };
}

text!(Duration, "a time with its unit, e.g. \"5 s\" or \"10 min\"", parse_duration);
text!(Rate, "a rate with its unit, e.g. \"40 Mbit/s\"", str::parse::<Rate>);
text!(ByteSize, "a size with its unit, e.g. \"64 kB\" or \"10 GB\"", str::parse::<ByteSize>);
text!(IpNet, "a network, e.g. \"10.0.0.0/8\", or one address", thalweg_relay::parse_cidr);
text!(
    DatabaseUrl,
    "a database's URL, e.g. \"postgres://thalweg@db.example/thalweg?sslmode=verify-full\"",
    str::parse::<DatabaseUrl>
);
text!(NodeId, "a key of 64 hexadecimal digits", str::parse::<NodeId>);
text!(WallTime, "a date with its zone, e.g. \"2026-04-15T23:59:00Z\"", parse_date);
text!(
    MemberPattern,
    "a member's name, \"@\" and a tag, or \"*\" for all members",
    str::parse::<MemberPattern>
);
text!(
    ProbeServer,
    "the URL of a file to probe with, e.g. \"http://speed.example/256k.bin\"",
    str::parse::<ProbeServer>
);
text!(Name, "a name, e.g. \"fra-1\" or \"country=de\"", str::parse::<Name>);

impl Text for SocketAddr {
    const EXPECTED: &'static str =
        "an address and a port, e.g. \"127.0.0.1:1080\" or \"[::1]:1080\"";
    fn read(text: &str) -> Result<Self, String> {
        let shown: String = text.chars().take(64).flat_map(char::escape_debug).collect();
        text.parse().map_err(|_| format!("`{shown}` is not {}", Self::EXPECTED))
    }
}

impl Text for ApiListen {
    const EXPECTED: &'static str =
        "a loopback address and a port, e.g. \"127.0.0.1:7374\", or \"off\"";
    fn read(text: &str) -> Result<Self, String> {
        let shown: String = text.chars().take(64).flat_map(char::escape_debug).collect();
        match text {
            "off" => Ok(Self::Off),
            _ => text
                .parse()
                .map(Self::At)
                .map_err(|_| format!("`{shown}` is not {}", Self::EXPECTED)),
        }
    }
}

impl Text for String {
    const EXPECTED: &'static str = "text";
    fn read(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl Text for PortRange {
    const EXPECTED: &'static str = "a port or a range of them, e.g. \"443\" or \"8000-8999\"";
    fn read(text: &str) -> Result<Self, String> {
        text.parse::<Self>().map_err(|e| e.to_string())
    }
    fn from_number(number: i64) -> Option<Self> {
        u16::try_from(number).ok().filter(|port| *port > 0).map(Self::one)
    }
}

/// A single value: `#[serde(deserialize_with = "text::one")]`.
pub(super) fn one<'de, T: Text, D: Deserializer<'de>>(d: D) -> Result<T, D::Error> {
    Value::deserialize(d).map(|value| value.0)
}

/// A key that may be absent: `#[serde(deserialize_with = "text::option")]`.
pub(super) fn option<'de, T: Text, D: Deserializer<'de>>(d: D) -> Result<Option<T>, D::Error> {
    one(d).map(Some)
}

/// A list, or a single value as a list of one: `#[serde(deserialize_with = "text::list")]`.
pub(super) fn list<'de, T, C, D>(d: D) -> Result<C, D::Error>
where
    T: Text,
    C: FromIterator<T>,
    D: Deserializer<'de>,
{
    struct ListVisitor<T>(PhantomData<T>);
    impl<'de, T: Text> de::Visitor<'de> for ListVisitor<T> {
        type Value = Vec<Value<T>>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}, or a list of these in brackets", T::EXPECTED)
        }
        fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut all = Vec::new();
            while let Some(value) = seq.next_element()? {
                all.push(value);
            }
            Ok(all)
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(vec![Value(ValueVisitor(PhantomData).visit_str(text)?)])
        }
        fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
            Ok(vec![Value(ValueVisitor(PhantomData).visit_i64(number)?)])
        }
    }
    let all = d.deserialize_any(ListVisitor(PhantomData))?;
    Ok(all.into_iter().map(|value| value.0).collect())
}

struct Value<T>(T);

impl<'de, T: Text> Deserialize<'de> for Value<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(ValueVisitor(PhantomData)).map(Self)
    }
}

struct ValueVisitor<T>(PhantomData<T>);

impl<T: Text> de::Visitor<'_> for ValueVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::read(text).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        let wrong = || E::invalid_type(de::Unexpected::Signed(number), &self);
        T::from_number(number).ok_or_else(wrong)
    }
}
