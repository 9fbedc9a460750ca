//! The kinds of servers: how each deviates from the standard or from what a tool expects, and where it was seen.
//!
//! A kind is data: a list of deviations from the right answer, which `answer` applies. Sources are sections of RFC 9110
//! (semantics), 9111 (caching), 9112 (HTTP/1.1), or reports in public trackers.

/// A deviation of a server's answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Deviation {
    /// Refuses ranges longer than `beyond` bytes.
    RefusesRanges {
        /// The limit in bytes; 0: all ranges are refused.
        beyond: u64,
        /// How they are refused.
        how: Refusal,
    },
    /// Answers this many ranges and refuses later ones.
    TiresOfRanges(u64, Refusal),
    /// Answers ranged requests from the first number, counted from 0, up to but without the second with the whole file.
    IgnoresRanges(u64, u64),
    /// Deviates in its answers to ranges.
    Parts(PartDeviation),
    /// Sends these validators.
    Shows(Validator),
    /// Answers 412 to every `If-Match`.
    NeverMatches,
    /// Answers 412 to every `If-Unmodified-Since`.
    AlwaysModified,
    /// Ignores all conditions, including `If-Range`.
    IgnoresConditions,
    /// Answers every `If-Range` with the whole file.
    NeverInRange,
    /// Serves two versions of the file, alternating by connection.
    TwoVersions,
    /// Frames the body in this way.
    Frames(Framing),
    /// Sends these lines in the head.
    Head(ExtraLines),
    /// Sends this Content-Encoding although the bytes are the file's own.
    Encoding(&'static str),
    /// Redirects the request.
    Redirects(Redirect),
    /// Answers `HEAD` with this status.
    RefusesHead(u16),
    /// Answers this many requests at a time and refuses further ones.
    AtATime(u32, Refusal),
    /// Closes each connection after one answer and announces it.
    ClosesEach,
    /// Closes each connection after one answer without announcing it.
    ClosesSilently,
    /// Waits this many ms before each answer.
    Waits(u64),
    /// Breaks off its first answer with a body after this percentage of it.
    BreaksFirst(u64),
    /// Serves an empty file, and answers ranges of it in this way.
    Empty(EmptyRange),
    /// Closes the connection after this percentage of each part's body.
    BreaksParts(u64),
    /// Sends a `Repr-Digest` with each part that is not the file's, such as that of the part.
    DigestOfPart,
}

/// How a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// With this status, without a body.
    Status(u16),
    /// By a reset of the connection.
    Reset,
    /// The connection is closed without a byte.
    Close,
    /// By a 302 to a page, which is answered with 200.
    Login,
    /// By a 302 to a page whose ranges are answered with 206.
    LoginInParts,
    /// By a 200 with a page.
    Page,
    /// By a 206 with a range of a page.
    PageInParts,
    /// By no answer within the timeouts of the tools.
    Silence,
}

/// A fault or peculiarity of a 206 answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartDeviation {
    /// At most this many bytes of the requested range.
    Clamped(u64),
    /// `/*` instead of the file's length.
    TotalUnknown,
    /// As `Clamped`, with `/*` instead of the file's length.
    ClampedOfUnknown(u64),
    /// The part's end instead of the file's length.
    TotalIsEnd,
    /// At most this many bytes of the requested range, with the part's end as the file's length.
    ClampedIsAll(u64),
    /// A total length that is too large by this many bytes.
    TotalTooLarge(u64),
    /// This many bytes more than requested, with a true Content-Range.
    Overlong(u64),
    /// Begins this many bytes before the requested range, with a true Content-Range.
    Early(u64),
    /// A part without Content-Range.
    NoContentRange,
    /// Two Content-Range fields that differ.
    TwoContentRanges,
    /// A Content-Range without the unit.
    NoUnit,
    /// The file's Content-Length instead of the part's.
    LengthOfWhole,
    /// A multipart/byteranges body for a single range.
    Multipart,
    /// The whole file, with status 206 and a true Content-Range.
    WholeFile,
    /// A 206 with the whole file as answer to plain requests.
    Unasked,
}

/// The validators of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validator {
    /// No validator.
    Nothing,
    /// A strong tag for each answer.
    TagPerAnswer,
    /// A weak tag for each answer.
    WeakPerAnswer,
    /// A strong tag for each connection.
    TagPerConnection,
    /// A strong tag of one of this many nodes, in turn.
    TagOfNodes(u64),
    /// A fixed weak tag.
    Weak,
    /// A tag without quotes.
    Unquoted,
    /// A date for each answer, and no tag.
    DatePerAnswer,
    /// A fixed date, and no tag.
    Date,
    /// An invalid date.
    NoDate,
}

/// How the length of a body is indicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// By chunks, with an extension and a trailer.
    Chunked,
    /// By chunks for the whole file; parts have a length.
    ChunkedWhole,
    /// By the end of the connection.
    UntilClose,
    Http10,
    /// Two Content-Length fields with one value.
    Twice,
    /// One Content-Length field with two equal values.
    List,
    /// A Content-Length that is too large by this many bytes; then the connection is closed.
    TooLong(u64),
}

/// Additional lines of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtraLines {
    /// This many short fields.
    Many(u32),
    /// One field of this many bytes.
    Long(usize),
    /// These lines, verbatim.
    Raw(&'static [u8]),
    /// Lines end with LF only.
    BareLf,
    /// A status line without a reason and without the space before it.
    NoReason,
    /// Responses 100 and 103 precede the answer.
    Interim,
}

/// The target of a redirect, below the path of the download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirect {
    /// A path of these bytes.
    Raw(&'static [u8]),
    /// This many redirects in a row.
    Chain(u32),
    /// With this status, and a fragment in the target.
    Status(u16),
    /// A relative path with dot segments.
    Dots,
    /// A target without the scheme.
    NoScheme,
    /// A location that answers only once.
    Signed,
}

/// How a range of an empty file is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyRange {
    /// Status 416 with this Content-Range, if any.
    Unsatisfied(Option<&'static str>),
    /// Status 416 with a page.
    Page,
    /// Status 206 with an empty body.
    EmptyPart,
}

/// The class of a kind's deviations; each class is an arm of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum DeviationClass {
    /// Ranges are refused or ignored.
    Refused,
    /// Parts differ from the requested ones.
    Parts,
    /// Features stop working after some requests.
    Turns,
    /// Versions cannot be distinguished, or change.
    Versions,
    /// Lengths and ends of bodies.
    Lengths,
    Heads,
    /// Content codings.
    Codings,
    Redirects,
    Connections,
    /// Empty files.
    Empty,
}

/// A kind of server.
#[derive(Clone, Debug)]
pub struct ServerKind {
    /// The first segment of its URLs.
    pub name: &'static str,
    /// The class of its deviations.
    pub class: DeviationClass,
    pub does: &'static [Deviation],
    /// Whether ranges and validators work, so that a tool that uses them is not slowed down.
    pub tolerant: bool,
    /// Where it was described or seen.
    pub source: &'static str,
}

impl ServerKind {
    /// The kind of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// Whether the kind has this deviation.
    pub fn has(&self, deviation: &Deviation) -> bool {
        self.does.contains(deviation)
    }

    /// How it answers ranges of its empty file; `None` if the file is not empty.
    pub fn empty(&self) -> Option<EmptyRange> {
        self.does.iter().find_map(|d| match d {
            Deviation::Empty(how) => Some(*how),
            _ => None,
        })
    }
}

const fn odd(
    class: DeviationClass,
    name: &'static str,
    does: &'static [Deviation],
    source: &'static str,
) -> ServerKind {
    ServerKind { name, class, does, tolerant: false, source }
}

const fn fair(
    class: DeviationClass,
    name: &'static str,
    does: &'static [Deviation],
    source: &'static str,
) -> ServerKind {
    ServerKind { name, class, does, tolerant: true, source }
}

use Deviation::{
    AlwaysModified, AtATime, BreaksFirst, BreaksParts, ClosesEach, ClosesSilently, DigestOfPart,
    Empty, Encoding, Frames, Head, IgnoresConditions, IgnoresRanges, NeverInRange, NeverMatches,
    Parts, Redirects, RefusesHead, RefusesRanges, Shows, TiresOfRanges, TwoVersions, Waits,
};
use DeviationClass::{
    Codings, Connections, Empty as EmptyFiles, Heads, Lengths, Parts as PartsClass,
    Redirects as RedirectsClass, Refused, Turns, Versions,
};

const ALL: u64 = u64::MAX;

const fn refuses(status: u16) -> Deviation {
    RefusesRanges { beyond: 0, how: Refusal::Status(status) }
}

/// All kinds.
pub const KINDS: &[ServerKind] = &[
    // ---- ranges are refused or ignored ----
    odd(
        Refused,
        "range-400",
        &[refuses(400)],
        "RFC 9110 §14: ranges are optional; behind a filter",
    ),
    odd(Refused, "range-403", &[refuses(403)], "bezzad/Downloader#220"),
    odd(Refused, "range-404", &[refuses(404)], "bezzad/Downloader#220"),
    odd(
        Refused,
        "range-416",
        &[refuses(416)],
        "RFC 9110 §15.5.17, of an application that knows no ranges",
    ),
    odd(Refused, "range-500", &[refuses(500)], "an application that fails at the field"),
    odd(Refused, "range-501", &[refuses(501)], "RFC 9110 §15.6.2"),
    odd(Refused, "range-503", &[refuses(503)], "bezzad/Downloader#220"),
    odd(
        Refused,
        "range-long-403",
        &[RefusesRanges { beyond: 300_000, how: Refusal::Status(403) }],
        "aria2/aria2#1627: 403 when the range is too long",
    ),
    odd(
        Refused,
        "range-reset",
        &[RefusesRanges { beyond: 0, how: Refusal::Reset }],
        "a filter that resets",
    ),
    odd(
        Refused,
        "range-close",
        &[RefusesRanges { beyond: 0, how: Refusal::Close }],
        "RFC 9112 §9.6",
    ),
    odd(
        Refused,
        "range-login",
        &[RefusesRanges { beyond: 0, how: Refusal::Login }],
        "an application that redirects what it does not know to its page",
    ),
    odd(
        Refused,
        "range-login-206",
        &[RefusesRanges { beyond: 0, how: Refusal::LoginInParts }],
        "a login page stored as a file, whose server answers ranges",
    ),
    odd(
        Refused,
        "range-page-206",
        &[RefusesRanges { beyond: 0, how: Refusal::PageInParts }],
        "a filter's page stored as a file, whose server answers ranges",
    ),
    odd(
        Refused,
        "range-silence",
        &[RefusesRanges { beyond: 0, how: Refusal::Silence }],
        "an application that hangs on an unknown field",
    ),
    odd(
        Refused,
        "range-page",
        &[RefusesRanges { beyond: 0, how: Refusal::Page }],
        "a filter whose page of refusal has status 200",
    ),
    odd(
        Refused,
        "range-ignored",
        &[IgnoresRanges(0, ALL)],
        "RFC 9110 §14.2: a server may ignore Range",
    ),
    odd(
        Refused,
        "range-ignored-head-405",
        &[IgnoresRanges(0, ALL), RefusesHead(405)],
        "RFC 9110 §15.5.6; applications without HEAD",
    ),
    // ---- parts differ from the requested ones ----
    odd(
        PartsClass,
        "clamp-64k",
        &[Parts(PartDeviation::Clamped(65_536))],
        "RFC 9110 §15.3.7; aria2/aria2#696",
    ),
    odd(PartsClass, "clamp-256k", &[Parts(PartDeviation::Clamped(262_144))], "apache/opendal#5689"),
    odd(
        PartsClass,
        "total-unknown",
        &[Parts(PartDeviation::TotalUnknown)],
        "RFC 9110 §14.4: complete-length may be `*`",
    ),
    odd(
        PartsClass,
        "clamp-of-unknown",
        &[Parts(PartDeviation::ClampedOfUnknown(500_000))],
        "RFC 9110 §14.4 and §15.3.7 together",
    ),
    odd(
        PartsClass,
        "total-is-end",
        &[Parts(PartDeviation::TotalIsEnd)],
        "a proxy that reckons the total from the part",
    ),
    odd(
        PartsClass,
        "clamp-is-all",
        &[Parts(PartDeviation::ClampedIsAll(100_000))],
        "a proxy that limits parts and computes the total from the part",
    ),
    odd(
        PartsClass,
        "part-breaks-at-0",
        &[BreaksParts(0)],
        "RFC 9112 §8: an incomplete message; a filter that inspects bodies",
    ),
    odd(
        PartsClass,
        "part-breaks-at-10",
        &[BreaksParts(10)],
        "RFC 9112 §8: an incomplete message; a filter that inspects bodies",
    ),
    odd(
        PartsClass,
        "part-digest",
        &[DigestOfPart],
        "RFC 9530 §3: Repr-Digest covers the whole representation, even in a 206",
    ),
    odd(
        PartsClass,
        "total-too-large",
        &[Parts(PartDeviation::TotalTooLarge(4096))],
        "RFC 9110 §14.4, of another version",
    ),
    odd(
        PartsClass,
        "part-overlong",
        &[Parts(PartDeviation::Overlong(5000))],
        "RFC 9110 §15.3.7: look at Content-Range",
    ),
    odd(
        PartsClass,
        "part-early",
        &[Parts(PartDeviation::Early(4096))],
        "a cache that answers in blocks of its own",
    ),
    odd(
        PartsClass,
        "part-no-content-range",
        &[Parts(PartDeviation::NoContentRange)],
        "RFC 9110 §15.3.7.1: MUST, and is missing",
    ),
    odd(
        PartsClass,
        "part-two-content-ranges",
        &[Parts(PartDeviation::TwoContentRanges)],
        "RFC 9110 §5.3",
    ),
    odd(
        PartsClass,
        "part-no-unit",
        &[Parts(PartDeviation::NoUnit)],
        "RFC 9110 §14.4: the unit is missing",
    ),
    odd(
        PartsClass,
        "part-length-of-whole",
        &[Parts(PartDeviation::LengthOfWhole)],
        "RFC 9110 §8.6",
    ),
    odd(
        PartsClass,
        "part-multipart",
        &[Parts(PartDeviation::Multipart)],
        "RFC 9110 §15.3.7.2: for one range, too",
    ),
    odd(
        PartsClass,
        "part-whole",
        &[Parts(PartDeviation::WholeFile)],
        "RFC 9110 §15.3.7: more than was asked",
    ),
    odd(
        PartsClass,
        "part-unasked",
        &[Parts(PartDeviation::Unasked)],
        "a cache that answers a plain request with its stored 206",
    ),
    // ---- behaviour changes during a download ----
    odd(
        Turns,
        "part-then-whole",
        &[IgnoresRanges(1, ALL)],
        "nodes of different makes behind one name",
    ),
    odd(
        Turns,
        "whole-then-part",
        &[IgnoresRanges(0, 1)],
        "a cache that has the file from the second time on",
    ),
    odd(
        Turns,
        "whole-now-and-then",
        &[IgnoresRanges(2, 4)],
        "nodes of different makes behind one name",
    ),
    odd(
        Turns,
        "tires-403",
        &[TiresOfRanges(2, Refusal::Status(403))],
        "a limit of requests by client",
    ),
    odd(Turns, "tires-503", &[TiresOfRanges(3, Refusal::Status(503))], "RFC 9110 §15.6.4"),
    odd(Turns, "tires-429", &[TiresOfRanges(2, Refusal::Status(429))], "RFC 6585 §4"),
    odd(Turns, "tires-reset", &[TiresOfRanges(2, Refusal::Reset)], "a filter that counts"),
    odd(Turns, "breaks-first", &[BreaksFirst(40)], "RFC 9112 §8: an incomplete message"),
    // ---- versions cannot be distinguished, or change ----
    odd(
        Versions,
        "tag-per-answer",
        &[Shows(Validator::TagPerAnswer), IgnoresConditions],
        "lingochamp/FileDownloader#1307",
    ),
    odd(
        Versions,
        "tag-per-answer-412",
        &[Shows(Validator::TagPerAnswer)],
        "the same, where conditions are looked at",
    ),
    odd(
        Versions,
        "weak-per-answer",
        &[Shows(Validator::WeakPerAnswer), IgnoresConditions],
        "RFC 9110 §8.8.1",
    ),
    odd(
        Versions,
        "tag-per-connection",
        &[Shows(Validator::TagPerConnection)],
        "nodes behind one name, by connection",
    ),
    odd(
        Versions,
        "tag-of-nodes",
        &[Shows(Validator::TagOfNodes(3))],
        "781flyingdutchman/background_downloader#541",
    ),
    odd(
        Versions,
        "tag-weak",
        &[Shows(Validator::Weak)],
        "RFC 9110 §13.1.1: weak tags never match in If-Match",
    ),
    fair(
        Versions,
        "tag-unquoted",
        &[Shows(Validator::Unquoted), IgnoresConditions],
        "RFC 9110 §8.8.3: quotes are missing",
    ),
    odd(
        Versions,
        "date-per-answer",
        &[Shows(Validator::DatePerAnswer), IgnoresConditions],
        "an application that says now",
    ),
    fair(Versions, "date-only", &[Shows(Validator::Date)], "RFC 9110 §8.8.2"),
    fair(
        Versions,
        "date-no-date",
        &[Shows(Validator::NoDate), IgnoresConditions],
        "RFC 9110 §5.6.7: not a date",
    ),
    fair(
        Versions,
        "no-validator",
        &[Shows(Validator::Nothing)],
        "RFC 9110 §8.8: validators are optional",
    ),
    odd(Versions, "match-412", &[NeverMatches], "bitfireAT/davx5-ose#1365"),
    odd(Versions, "since-412", &[Shows(Validator::Date), AlwaysModified], "the same with a date"),
    odd(Versions, "if-range-whole", &[NeverInRange], "RFC 9110 §13.1.5: never seen as equal"),
    odd(
        Versions,
        "two-versions",
        &[TwoVersions, Shows(Validator::TagPerConnection)],
        "a roll-out that has reached half of the nodes",
    ),
    odd(
        Versions,
        "two-versions-dates",
        &[TwoVersions, Shows(Validator::Date)],
        "the same with dates",
    ),
    // ---- lengths ----
    odd(
        Lengths,
        "chunked",
        &[Frames(Framing::Chunked)],
        "RFC 9112 §7.1, with an extension and a trailer",
    ),
    fair(Lengths, "chunked-whole", &[Frames(Framing::ChunkedWhole)], "RFC 9112 §7.1"),
    odd(
        Lengths,
        "until-close",
        &[Frames(Framing::UntilClose), IgnoresRanges(0, ALL)],
        "RFC 9112 §6.3, last case",
    ),
    fair(Lengths, "http-1.0", &[Frames(Framing::Http10), ClosesEach], "RFC 9112 appendix C.2"),
    fair(Lengths, "length-twice", &[Frames(Framing::Twice)], "RFC 9110 §8.6: equal values"),
    fair(Lengths, "length-list", &[Frames(Framing::List)], "RFC 9110 §8.6: a list of equal values"),
    odd(
        Lengths,
        "length-too-long",
        &[Frames(Framing::TooLong(1000)), IgnoresRanges(0, ALL), ClosesSilently],
        "RFC 9112 §8: must be seen as incomplete",
    ),
    // ---- heads ----
    fair(Heads, "honest", &[], "what an ordinary server does"),
    fair(Heads, "fields-150", &[Head(ExtraLines::Many(150))], "httpie/cli#802"),
    fair(Heads, "fields-1000", &[Head(ExtraLines::Many(1000))], "mountain-loop/yaak#658"),
    fair(Heads, "field-20k", &[Head(ExtraLines::Long(20_000))], "akamai/httpie-edgegrid#12"),
    fair(
        Heads,
        "folded",
        &[Head(ExtraLines::Raw(
            b"Content-Security-Policy: default-src 'self';\r\n  img-src *;\r\n\tfont-src *",
        ))],
        "RFC 9112 §5.2: MUST be taken; sbstp/attohttpc#94",
    ),
    fair(
        Heads,
        "space-before-colon",
        &[Head(ExtraLines::Raw(b"X-Powered-By : something"))],
        "RFC 9112 §5.1; curl/curl#8844",
    ),
    fair(
        Heads,
        "odd-name",
        &[Head(ExtraLines::Raw(b"X-Served(By): node/3"))],
        "RFC 9110 §5.1; envoyproxy/envoy#31009",
    ),
    fair(
        Heads,
        "latin-1",
        &[Head(ExtraLines::Raw(b"X-Title: caf\xe9 \xfcber"))],
        "RFC 9110 §5.5: obs-text",
    ),
    fair(Heads, "bare-lf", &[Head(ExtraLines::BareLf)], "RFC 9112 §2.2: MAY be taken"),
    fair(
        Heads,
        "no-reason",
        &[Head(ExtraLines::NoReason)],
        "RFC 9112 §4: the reason is optional, the blank is not",
    ),
    fair(Heads, "interim", &[Head(ExtraLines::Interim)], "RFC 9110 §15.2, with early hints"),
    // ---- codings ----
    fair(Codings, "coding-none", &[Encoding("none")], "versity/versitygw#2398"),
    fair(Codings, "coding-utf-8", &[Encoding("utf-8")], "dondai44423/donsetch#290"),
    fair(Codings, "coding-aws-chunked", &[Encoding("aws-chunked")], "versity/versitygw#2398"),
    fair(Codings, "coding-empty", &[Encoding("")], "RFC 9110 §8.4: an empty list"),
    fair(Codings, "coding-x-custom", &[Encoding("x-custom")], "RFC 9110 §8.4.1"),
    fair(Codings, "coding-gzip", &[Encoding("gzip")], "a .tar.gz whose type is said as its coding"),
    // ---- redirects ----
    odd(
        RedirectsClass,
        "to-raw-space",
        &[Redirects(Redirect::Raw(b"a file (1).bin"))],
        "sagebind/isahc#315",
    ),
    odd(
        RedirectsClass,
        "to-raw-utf-8",
        &[Redirects(Redirect::Raw("d\u{e9}p\u{f4}t.bin".as_bytes()))],
        "Norconex/crawler#199",
    ),
    odd(
        RedirectsClass,
        "to-raw-latin-1",
        &[Redirects(Redirect::Raw(b"d\xe9p\xf4t.bin"))],
        "RFC 9110 §10.2.2, last paragraph",
    ),
    odd(
        RedirectsClass,
        "to-raw-brackets",
        &[Redirects(Redirect::Raw(b"x[1]|{y}^.bin"))],
        "sagebind/isahc#315",
    ),
    odd(RedirectsClass, "to-chain", &[Redirects(Redirect::Chain(8))], "RFC 9110 §15.4"),
    odd(
        RedirectsClass,
        "to-303",
        &[Redirects(Redirect::Status(303))],
        "RFC 9110 §15.4.4, with a fragment",
    ),
    odd(
        RedirectsClass,
        "to-308",
        &[Redirects(Redirect::Status(308))],
        "RFC 9110 §15.4.9, with a fragment",
    ),
    odd(RedirectsClass, "to-dots", &[Redirects(Redirect::Dots)], "RFC 3986 §5.2.4"),
    odd(RedirectsClass, "to-no-scheme", &[Redirects(Redirect::NoScheme)], "RFC 3986 §4.2"),
    odd(
        RedirectsClass,
        "to-signed-once",
        &[Redirects(Redirect::Signed)],
        "a signed place that answers one request",
    ),
    // ---- connections ----
    fair(Connections, "closes-each", &[ClosesEach], "RFC 9112 §9.6"),
    odd(Connections, "closes-silently", &[ClosesSilently], "RFC 9112 §9.3.1: a client retries"),
    odd(
        Connections,
        "one-at-a-time-503",
        &[AtATime(1, Refusal::Status(503))],
        "a limit of connections by client",
    ),
    odd(
        Connections,
        "one-at-a-time-403",
        &[AtATime(1, Refusal::Status(403))],
        "the same, as a filter answers",
    ),
    odd(
        Connections,
        "one-at-a-time-reset",
        &[AtATime(1, Refusal::Reset)],
        "the same, as a firewall does",
    ),
    odd(
        Connections,
        "one-at-a-time-closed-503",
        &[AtATime(1, Refusal::Status(503)), ClosesEach],
        "the same, of a server that closes each connection",
    ),
    odd(
        Connections,
        "one-at-a-time-closed-403",
        &[AtATime(1, Refusal::Status(403)), ClosesEach],
        "the same, as a filter answers",
    ),
    odd(
        Connections,
        "one-at-a-time-closed-reset",
        &[AtATime(1, Refusal::Reset), ClosesEach],
        "the same, as a firewall does",
    ),
    odd(Connections, "waits", &[Waits(1200)], "an archive that must be opened first"),
    // ---- empty files ----
    odd(EmptyFiles, "empty-416-bare", &[Empty(EmptyRange::Unsatisfied(None))], "kurin/blazer#71"),
    odd(
        EmptyFiles,
        "empty-416-star",
        &[Empty(EmptyRange::Unsatisfied(Some("bytes */*")))],
        "golang/go#47021",
    ),
    odd(
        EmptyFiles,
        "empty-416-right",
        &[Empty(EmptyRange::Unsatisfied(Some("bytes */0")))],
        "RFC 9110 §15.5.17",
    ),
    odd(EmptyFiles, "empty-416-page", &[Empty(EmptyRange::Page)], "RFC 9110 §15.5.17, with a page"),
    odd(
        EmptyFiles,
        "empty-206",
        &[Empty(EmptyRange::EmptyPart)],
        "RFC 9110 §14.4 knows no empty range",
    ),
    odd(
        EmptyFiles,
        "empty-200",
        &[Empty(EmptyRange::EmptyPart), IgnoresRanges(0, ALL)],
        "RFC 9110 §14.2",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_fit_into_urls() {
        let names: BTreeSet<_> = KINDS.iter().map(|kind| kind.name).collect();
        assert_eq!(names.len(), KINDS.len());
        assert!(names.len() >= 60, "{}", names.len());
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
        assert!(names.iter().all(|name| name.chars().all(fits)));
    }

    #[test]
    fn every_kind_has_a_source_and_every_class_a_kind() {
        use clap::ValueEnum as _;
        assert!(KINDS.iter().all(|kind| !kind.source.is_empty()));
        for class in DeviationClass::value_variants() {
            assert!(KINDS.iter().filter(|kind| kind.class == *class).count() >= 5, "{class:?}");
        }
    }
}
