//! The answers of a server of a given kind. Pure: the history of the download is an argument.

use super::{
    kinds::{
        Deviation, EmptyRange, ExtraLines, Framing, PartDeviation, Redirect, Refusal, ServerKind,
        Validator,
    },
    request::Request,
};
use std::{ops::Range, time::Duration};

/// The fixed date of the first version, and of the second one a day later.
const DATES: [&str; 2] = ["Mon, 01 Jan 2024 00:00:00 GMT", "Tue, 02 Jan 2024 00:00:00 GMT"];

/// The page that a filter shows instead of a file.
const PAGE: &[u8] = b"<!doctype html><title>Sign in</title><p>Please sign in to go on.\n";

/// Longer than the timeouts of the tools.
const SILENCE: Duration = Duration::from_secs(60);

/// A digest that does not match the file (RFC 9530).
const OTHER_DIGEST: &str = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:";

/// The history of a download before a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DownloadHistory {
    /// The number of requests of this download.
    pub requests: u64,
    /// The number of requests with a Range field.
    pub ranged: u64,
    /// The number of its unfinished answers, without this one.
    pub open: u32,
    /// The number of its connections that were opened before this one.
    pub connections: u64,
    /// Whether a body was broken off.
    pub broken: bool,
    /// Whether this signed location has answered already.
    pub spent: bool,
}

/// An answer: its bytes, and what happens to the connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Interim responses before the head.
    pub interim: Vec<u8>,
    /// The head with its final empty line.
    pub head: Vec<u8>,
    /// The body including its framing.
    pub body: Vec<Piece>,
    /// The number of body bytes after which the connection is closed.
    pub breaks_at: Option<u64>,
    /// The delay before the first byte.
    pub waits: Duration,
    /// Whether the connection is closed afterwards.
    pub closes: bool,
    /// Whether the connection is reset and nothing is sent.
    pub resets: bool,
}

/// A piece of a body.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A range of one of the file's two versions.
    File(usize, Range<u64>),
}

impl Piece {
    /// The length in bytes.
    pub fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(_, range) => range.end - range.start,
        }
    }
}

/// An answer before framing: status, fields, content.
#[derive(Clone, Debug, Default)]
struct Draft {
    status: u16,
    fields: Vec<Vec<u8>>,
    content: Vec<Piece>,
    /// The value of Content-Length, if it differs from the content's length.
    length: Option<u64>,
    /// Whether the content is the file or a part of it.
    is_file: bool,
}

impl Draft {
    fn with_status(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    fn with_page(status: u16) -> Self {
        let content = vec![Piece::Bytes(PAGE.to_vec())];
        let fields = vec![b"Content-Type: text/html".to_vec()];
        Self { status, fields, content, ..Self::default() }
    }

    fn field(&mut self, name: &str, value: impl AsRef<[u8]>) {
        let mut line = format!("{name}: ").into_bytes();
        line.extend_from_slice(value.as_ref());
        self.fields.push(line);
    }
}

/// A server of one kind, for one download.
pub struct ScriptedServer<'a> {
    pub kind: &'static ServerKind,
    /// The path of the download's URLs without the file's name: `/KIND/DOWNLOAD/`.
    pub place: &'a str,
    /// The length of the file in bytes.
    pub length: u64,
}

impl ScriptedServer<'_> {
    /// Answers a request.
    pub fn answer(&self, request: &Request, before: &DownloadHistory) -> Answer {
        let mut answer = match self.draft(request, before) {
            Ok(draft) => self.write(request, before, draft),
            Err(Refusal::Reset) => Answer { resets: true, ..Answer::default() },
            Err(Refusal::Silence) => {
                return Answer { closes: true, waits: SILENCE, ..Answer::default() };
            }
            Err(_) => Answer { closes: true, ..Answer::default() },
        };
        answer.waits = self.waits();
        answer
    }

    /// Drafts the answer; `Err` if no byte is sent.
    fn draft(&self, request: &Request, before: &DownloadHistory) -> Result<Draft, Refusal> {
        let name = request.target.strip_prefix(self.place).unwrap_or_default();
        if name == "login" {
            return Ok(Draft::with_page(200));
        }
        if name == "login-file" {
            return Ok(page_in_parts(request));
        }
        if let Some(refusal) = self.refusal(request, before) {
            return self.refused(request, refusal);
        }
        if let Some(status) = self.head_refusal(request) {
            return Ok(Draft::with_status(status));
        }
        if let Some(draft) = self.redirected(request, name, before) {
            return Ok(draft);
        }
        Ok(self.file(request, before))
    }

    fn waits(&self) -> Duration {
        let waits = self.kind.does.iter().find_map(|d| match d {
            Deviation::Waits(ms) => Some(*ms),
            _ => None,
        });
        Duration::from_millis(waits.unwrap_or_default())
    }

    fn refusal(&self, request: &Request, before: &DownloadHistory) -> Option<Refusal> {
        let ranged = request.is_ranged();
        let asked = request.range(self.length).map_or(0, |r| r.end.saturating_sub(r.start));
        self.kind.does.iter().find_map(|deviation| match deviation {
            Deviation::RefusesRanges { beyond: 0, how } if ranged => Some(*how),
            Deviation::RefusesRanges { beyond, how } if *beyond > 0 && asked > *beyond => {
                Some(*how)
            }
            Deviation::TiresOfRanges(after, how) if ranged && before.ranged >= *after => Some(*how),
            Deviation::AtATime(most, how) if before.open >= *most => Some(*how),
            _ => None,
        })
    }

    fn refused(&self, request: &Request, refusal: Refusal) -> Result<Draft, Refusal> {
        let redirect = |to: &str| {
            let mut draft = Draft::with_status(302);
            draft.field("Location", format!("{}{to}", self.place));
            Ok(draft)
        };
        match refusal {
            Refusal::Status(status) => Ok(Draft::with_status(status)),
            Refusal::Page => Ok(Draft::with_page(200)),
            Refusal::PageInParts => Ok(page_in_parts(request)),
            Refusal::Login => redirect("login"),
            Refusal::LoginInParts => redirect("login-file"),
            Refusal::Reset | Refusal::Close | Refusal::Silence => Err(refusal),
        }
    }

    fn head_refusal(&self, request: &Request) -> Option<u16> {
        self.kind.does.iter().find_map(|deviation| match deviation {
            Deviation::RefusesHead(status) if request.method == "HEAD" => Some(*status),
            _ => None,
        })
    }

    /// A redirect, or the refusal of a signed location.
    fn redirected(&self, request: &Request, name: &str, before: &DownloadHistory) -> Option<Draft> {
        let how = self.kind.does.iter().find_map(|deviation| match deviation {
            Deviation::Redirects(how) => Some(*how),
            _ => None,
        })?;
        let place = self.place.as_bytes();
        let (status, to) = match how {
            Redirect::Signed if name.starts_with("signed/") => {
                return before.spent.then(|| Draft::with_status(403));
            }
            Redirect::Chain(most) if name.starts_with("hop/") => {
                let hop: u32 = name[4..].parse().unwrap_or(most);
                (302, (hop < most).then(|| format!("{}hop/{}", self.place, hop + 1).into_bytes())?)
            }
            _ if name.starts_with("there/") => return None,
            Redirect::Raw(path) => (302, [place, b"there/", path].concat()),
            Redirect::Chain(_) => (302, [place, b"hop/1"].concat()),
            Redirect::Status(status) => (status, [place, b"there/data.bin#part"].concat()),
            Redirect::Dots => (302, b"./gone/../there/./data.bin".to_vec()),
            Redirect::NoScheme => {
                let host = request.field("host").unwrap_or_default();
                (302, [b"//", host.as_bytes(), place, b"there/data.bin"].concat())
            }
            Redirect::Signed => {
                (302, format!("{}signed/{}", self.place, before.requests).into_bytes())
            }
        };
        let mut draft = Draft::with_status(status);
        draft.field("Location", to);
        Some(draft)
    }

    /// The version of the file that this connection gets.
    fn version(&self, before: &DownloadHistory) -> usize {
        let two = self.kind.has(&Deviation::TwoVersions);
        if two { (before.connections % 2) as usize } else { 0 }
    }

    fn validator(&self) -> Option<Validator> {
        self.kind.does.iter().find_map(|deviation| match deviation {
            Deviation::Shows(validator) => Some(*validator),
            _ => None,
        })
    }

    /// The entity tag and the date of this answer.
    fn validators(&self, before: &DownloadHistory) -> (Option<String>, Option<String>) {
        let date = DATES[self.version(before)].to_owned();
        let DownloadHistory { requests, connections, .. } = before;
        match self.validator() {
            None => (Some("\"v1\"".into()), Some(date)),
            Some(Validator::Nothing) => (None, None),
            Some(Validator::TagPerAnswer) => (Some(format!("\"a{requests}\"")), None),
            Some(Validator::WeakPerAnswer) => (Some(format!("W/\"a{requests}\"")), None),
            Some(Validator::TagPerConnection) if self.kind.has(&Deviation::TwoVersions) => {
                (Some(format!("\"v{}\"", self.version(before))), None)
            }
            Some(Validator::TagPerConnection) => (Some(format!("\"c{connections}\"")), None),
            Some(Validator::TagOfNodes(nodes)) => {
                (Some(format!("\"n{}\"", requests % nodes)), None)
            }
            Some(Validator::Weak) => (Some("W/\"v1\"".into()), None),
            Some(Validator::Unquoted) => (Some("v1".into()), None),
            Some(Validator::DatePerAnswer) => {
                let second = requests % 60;
                (None, Some(format!("Mon, 01 Jan 2024 00:00:{second:02} GMT")))
            }
            Some(Validator::Date) => (None, Some(date)),
            Some(Validator::NoDate) => (None, Some("yesterday".into())),
        }
    }

    /// Whether a condition fails: RFC 9110 §13.1.1, §13.1.4.
    fn fails(&self, request: &Request, tag: Option<&str>, date: Option<&str>) -> bool {
        if self.kind.has(&Deviation::IgnoresConditions) {
            return false;
        }
        if let Some(wanted) = request.field("if-match") {
            let strong =
                |tag: &str| !tag.starts_with("W/") && wanted.split(',').any(|w| w.trim() == tag);
            return self.kind.has(&Deviation::NeverMatches)
                || (wanted != "*" && !tag.is_some_and(strong));
        }
        request.field("if-unmodified-since").is_some_and(|wanted| {
            self.kind.has(&Deviation::AlwaysModified) || date.is_some_and(|date| date != wanted)
        })
    }

    /// Whether If-Range lets the range apply: §13.1.5.
    fn in_range(&self, request: &Request, tag: Option<&str>, date: Option<&str>) -> bool {
        if self.kind.has(&Deviation::IgnoresConditions) {
            return true;
        }
        request.field("if-range").is_none_or(|wanted| {
            let strong = !wanted.starts_with("W/") && (Some(wanted) == tag || Some(wanted) == date);
            strong && !self.kind.has(&Deviation::NeverInRange)
        })
    }

    fn file(&self, request: &Request, before: &DownloadHistory) -> Draft {
        let (tag, date) = self.validators(before);
        let (tag, date) = (tag.as_deref(), date.as_deref());
        if self.fails(request, tag, date) {
            return Draft::with_status(412);
        }
        let version = self.version(before);
        let ignores = self.kind.does.iter().any(|deviation| match deviation {
            Deviation::IgnoresRanges(from, to) => (*from..*to).contains(&before.ranged),
            _ => false,
        });
        let range = if ignores { None } else { request.range(self.length) };
        let range = range.filter(|_| self.in_range(request, tag, date));
        let mut draft = match (range, self.kind.empty()) {
            (Some(_), Some(how)) => empty(how),
            (Some(range), None) if range.is_empty() => {
                unsatisfied(Some(&format!("bytes */{}", self.length)))
            }
            (Some(range), None) => self.part(version, range),
            (None, _) => self.whole(version),
        };
        tag.into_iter().for_each(|tag| draft.field("ETag", tag));
        date.into_iter().for_each(|date| draft.field("Last-Modified", date));
        self.coding().into_iter().for_each(|coding| draft.field("Content-Encoding", coding));
        draft
    }

    fn coding(&self) -> Option<&'static str> {
        self.kind.does.iter().find_map(|deviation| match deviation {
            Deviation::Encoding(coding) => Some(*coding),
            _ => None,
        })
    }

    fn how_parts(&self) -> Option<PartDeviation> {
        self.kind.does.iter().find_map(|deviation| match deviation {
            Deviation::Parts(part) => Some(*part),
            _ => None,
        })
    }

    fn whole(&self, version: usize) -> Draft {
        let all = 0..self.length;
        let mut draft = Draft::with_status(200);
        draft.is_file = true;
        draft.content.push(Piece::File(version, all.clone()));
        if self.how_parts() == Some(PartDeviation::Unasked) {
            draft.status = 206;
            draft.field("Content-Range", content_range(&all, self.length));
        }
        draft
    }

    fn part(&self, version: usize, asked: Range<u64>) -> Draft {
        let length = self.length;
        let clamp = |most: u64| asked.start..asked.end.min(asked.start + most);
        let how = self.how_parts();
        let (range, total) = match how {
            Some(PartDeviation::Clamped(most)) => (clamp(most), Some(length)),
            Some(PartDeviation::ClampedOfUnknown(most)) => (clamp(most), None),
            Some(PartDeviation::TotalUnknown) => (asked, None),
            Some(PartDeviation::TotalIsEnd) => (asked.clone(), Some(asked.end)),
            Some(PartDeviation::ClampedIsAll(most)) => (clamp(most), Some(clamp(most).end)),
            Some(PartDeviation::TotalTooLarge(by)) => (asked, Some(length + by)),
            Some(PartDeviation::Overlong(by)) => {
                (asked.start..(asked.end + by).min(length), Some(length))
            }
            Some(PartDeviation::Early(by)) => {
                (asked.start.saturating_sub(by)..asked.end, Some(length))
            }
            Some(PartDeviation::WholeFile) => (0..length, Some(length)),
            _ => (asked, Some(length)),
        };
        let total = total.map_or("*".to_owned(), |total| total.to_string());
        let content_range = format!("bytes {}-{}/{total}", range.start, range.end - 1);
        let mut draft = Draft::with_status(206);
        draft.is_file = true;
        let piece = Piece::File(version, range.clone());
        match how {
            Some(PartDeviation::NoContentRange) => {}
            Some(PartDeviation::TwoContentRanges) => {
                draft.field("Content-Range", &content_range);
                draft.field(
                    "Content-Range",
                    format!("bytes 0-{}/{length}", range.end - range.start),
                );
            }
            Some(PartDeviation::NoUnit) => {
                draft.field("Content-Range", &content_range["bytes ".len()..])
            }
            Some(PartDeviation::Multipart) => return multipart(draft, &content_range, piece),
            _ => draft.field("Content-Range", &content_range),
        }
        if self.kind.has(&Deviation::DigestOfPart) {
            draft.field("Repr-Digest", OTHER_DIGEST);
        }
        if how == Some(PartDeviation::LengthOfWhole) && range.end - range.start < length {
            draft.length = Some(length);
        }
        draft.content.push(piece);
        draft
    }

    fn framing(&self) -> Option<Framing> {
        self.kind.does.iter().find_map(|deviation| match deviation {
            Deviation::Frames(framing) => Some(*framing),
            _ => None,
        })
    }

    /// Writes the head and frames the body.
    fn write(&self, request: &Request, before: &DownloadHistory, mut draft: Draft) -> Answer {
        let mut answer = Answer::default();
        let content = std::mem::take(&mut draft.content);
        let length: u64 = content.iter().map(Piece::length).sum();
        self.frame(&mut draft, &mut answer, length);
        let closes = self.kind.has(&Deviation::ClosesEach);
        if closes {
            draft.field("Connection", "close");
        }
        answer.closes |= closes || self.kind.has(&Deviation::ClosesSilently);
        // A client detects a false length when the connection ends.
        answer.closes |= draft.length.is_some();
        self.lines(&mut draft, &mut answer);
        answer.head = self.head(&draft);
        if request.method != "HEAD" {
            answer.body = self.framed(content, draft.is_file);
            answer.breaks_at = self.breaks(&draft, before, length);
        }
        answer
    }

    /// Adds the fields about the length.
    fn frame(&self, draft: &mut Draft, answer: &mut Answer, length: u64) {
        let announced = draft.length.unwrap_or(length);
        let framing = self.framing().filter(|_| draft.is_file);
        match framing {
            Some(Framing::Chunked) => draft.field("Transfer-Encoding", "chunked"),
            Some(Framing::ChunkedWhole) if draft.status == 200 => {
                draft.field("Transfer-Encoding", "chunked");
            }
            Some(Framing::UntilClose) => answer.closes = true,
            Some(Framing::Twice) => {
                draft.field("Content-Length", announced.to_string());
                draft.field("Content-Length", announced.to_string());
            }
            Some(Framing::List) => {
                draft.field("Content-Length", format!("{announced}, {announced}"))
            }
            Some(Framing::TooLong(by)) => {
                draft.field("Content-Length", (announced + by).to_string())
            }
            _ => draft.field("Content-Length", announced.to_string()),
        }
    }

    fn is_chunked(&self, draft_status: u16) -> bool {
        match self.framing() {
            Some(Framing::Chunked) => true,
            Some(Framing::ChunkedWhole) => draft_status == 200,
            _ => false,
        }
    }

    fn lines(&self, draft: &mut Draft, answer: &mut Answer) {
        for deviation in self.kind.does {
            let Deviation::Head(lines) = deviation else { continue };
            match lines {
                ExtraLines::Many(n) => {
                    (0..*n).for_each(|i| draft.field("Set-Cookie", format!("c{i}=1")));
                }
                ExtraLines::Long(bytes) => draft.field("X-Policy", "p".repeat(*bytes)),
                ExtraLines::Raw(line) => draft.fields.push(line.to_vec()),
                ExtraLines::Interim => {
                    answer.interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\
                        Link: </style.css>; rel=preload\r\n\r\n"
                        .to_vec();
                }
                ExtraLines::BareLf | ExtraLines::NoReason => {}
            }
        }
    }

    fn head(&self, draft: &Draft) -> Vec<u8> {
        let version = if self.framing() == Some(Framing::Http10) { "1.0" } else { "1.1" };
        let bare = self.kind.has(&Deviation::Head(ExtraLines::NoReason));
        let reason = if bare { "" } else { " Said" };
        let end: &[u8] =
            if self.kind.has(&Deviation::Head(ExtraLines::BareLf)) { b"\n" } else { b"\r\n" };
        let mut head = format!("HTTP/{version} {}{reason}", draft.status).into_bytes();
        head.extend_from_slice(end);
        for line in &draft.fields {
            head.extend_from_slice(line);
            head.extend_from_slice(end);
        }
        head.extend_from_slice(end);
        head
    }

    /// Frames a body in chunks, if the kind does so.
    fn framed(&self, content: Vec<Piece>, is_file: bool) -> Vec<Piece> {
        let whole = matches!(content.first(), Some(Piece::File(_, r)) if *r == (0..self.length));
        let status = if whole { 200 } else { 206 };
        if !is_file || !self.is_chunked(status) {
            return content;
        }
        let mut framed = Vec::new();
        for piece in content.into_iter().filter(|piece| piece.length() > 0) {
            framed.push(Piece::Bytes(format!("{:x};a=b\r\n", piece.length()).into_bytes()));
            framed.push(piece);
            framed.push(Piece::Bytes(b"\r\n".to_vec()));
        }
        framed.push(Piece::Bytes(b"0\r\nX-Trailer: yes\r\n\r\n".to_vec()));
        framed
    }

    fn breaks(&self, draft: &Draft, before: &DownloadHistory, length: u64) -> Option<u64> {
        self.kind.does.iter().find_map(|deviation| match deviation {
            Deviation::BreaksFirst(part) if draft.is_file && !before.broken => {
                Some(length * part / 100)
            }
            Deviation::BreaksParts(part) if draft.status == 206 => Some(length * part / 100),
            _ => None,
        })
    }
}

fn content_range(range: &Range<u64>, total: u64) -> String {
    format!("bytes {}-{}/{total}", range.start, range.end.saturating_sub(1))
}

/// A page with support for ranges, as a file server answers it.
fn page_in_parts(request: &Request) -> Draft {
    let length = PAGE.len() as u64;
    let mut draft = Draft::with_page(200);
    if let Some(range) = request.range(length) {
        if range.is_empty() {
            return unsatisfied(Some(&format!("bytes */{length}")));
        }
        draft.status = 206;
        draft.field("Content-Range", content_range(&range, length));
        let bytes = PAGE[range.start as usize..range.end as usize].to_vec();
        draft.content = vec![Piece::Bytes(bytes)];
    }
    draft
}

fn unsatisfied(range: Option<&str>) -> Draft {
    let mut draft = Draft::with_status(416);
    range.into_iter().for_each(|range| draft.field("Content-Range", range));
    draft
}

fn empty(how: EmptyRange) -> Draft {
    match how {
        EmptyRange::Unsatisfied(range) => unsatisfied(range),
        EmptyRange::Page => Draft::with_page(416),
        EmptyRange::EmptyPart => Draft::with_status(206),
    }
}

/// A part in the format of RFC 9110 §14.6.
fn multipart(mut draft: Draft, content_range: &str, piece: Piece) -> Draft {
    draft.field("Content-Type", "multipart/byteranges; boundary=LIMIT");
    let head = format!(
        "--LIMIT\r\nContent-Type: application/octet-stream\r\nContent-Range: {content_range}\r\n\r\n"
    );
    draft.content =
        vec![Piece::Bytes(head.into_bytes()), piece, Piece::Bytes(b"\r\n--LIMIT--\r\n".to_vec())];
    draft
}

#[cfg(test)]
mod tests {
    use super::{super::kinds::KINDS, *};

    const LENGTH: u64 = 1_000_000;

    fn script(kind: &str) -> ScriptedServer<'static> {
        let kind = ServerKind::find(kind).unwrap();
        let length = if kind.empty().is_some() { 0 } else { LENGTH };
        ScriptedServer { kind, place: "/k/0/", length }
    }

    fn ask(kind: &str, fields: &str, before: DownloadHistory) -> (String, Answer) {
        let head = format!("GET /k/0/data.bin HTTP/1.1\r\nHost: server:80\r\n{fields}");
        let request = Request::parse(head.as_bytes()).unwrap();
        let answer = script(kind).answer(&request, &before);
        (answer.head.iter().map(|byte| char::from(*byte)).collect(), answer)
    }

    fn status(kind: &str, fields: &str) -> u16 {
        let (head, _) = ask(kind, fields, DownloadHistory::default());
        head.get(9..12).and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    #[test]
    fn the_honest_kind_follows_rfc_9110() {
        assert_eq!(status("honest", ""), 200);
        let (head, answer) = ask("honest", "Range: bytes=10-19\r\n", DownloadHistory::default());
        assert!(
            head.starts_with("HTTP/1.1 206") && head.contains("bytes 10-19/1000000\r\n"),
            "{head}"
        );
        assert!(head.contains("Content-Length: 10\r\n"));
        assert_eq!(answer.body, [Piece::File(0, 10..20)]);
        assert_eq!(status("honest", "Range: bytes=1000000-\r\n"), 416);
        assert_eq!(status("honest", "Range: bytes=0-1\r\nIf-Match: \"v1\"\r\n"), 206);
        assert_eq!(status("honest", "Range: bytes=0-1\r\nIf-Match: \"v2\"\r\n"), 412);
        assert_eq!(status("honest", "Range: bytes=0-1\r\nIf-Range: \"v2\"\r\n"), 200);
        assert_eq!(status("honest", "Range: bytes=0-1\r\nIf-Range: \"v1\"\r\n"), 206);
    }

    /// curl's way: every kind answers a plain request, perhaps after redirects, with the whole file.
    #[test]
    fn a_plain_request_gets_the_whole_file_from_every_kind() {
        for kind in KINDS {
            let script = script(kind.name);
            let mut target = "/k/0/data.bin".to_owned();
            let mut before = DownloadHistory { broken: true, ..DownloadHistory::default() };
            let answer = loop {
                let head = format!("GET {target} HTTP/1.1\r\nHost: server:80\r\n");
                let raw: Vec<u8> = head.chars().map(|c| c as u8).collect();
                let answer = script.answer(&Request::parse(&raw).unwrap(), &before);
                before.requests += 1;
                let text: String = answer.head.iter().map(|byte| char::from(*byte)).collect();
                let Some(at) = text.find("Location: ") else { break answer };
                let to = text[at + 10..].lines().next().unwrap();
                let to = to.split('#').next().unwrap().replace("//server:80", "");
                target = to.replace("./gone/../", "/k/0/").replace("/./", "/");
                assert!(before.requests < 20, "{}: redirects do not end", kind.name);
            };
            let bytes: u64 = answer
                .body
                .iter()
                .filter(|p| matches!(p, Piece::File(..)))
                .map(Piece::length)
                .sum();
            assert_eq!(bytes, script.length, "{}", kind.name);
        }
    }

    #[test]
    fn ranges_are_answered_as_the_kind_specifies() {
        let range = "Range: bytes=0-499999\r\n";
        for (kind, wanted) in [
            ("range-403", 403),
            ("range-long-403", 403),
            ("range-login", 302),
            ("range-page", 200),
            ("range-ignored", 200),
            ("range-reset", 0),
            ("range-close", 0),
            ("part-whole", 206),
            ("whole-then-part", 200),
            ("part-then-whole", 206),
            ("total-is-end", 206),
        ] {
            assert_eq!(status(kind, range), wanted, "{kind}");
        }
        assert_eq!(status("range-long-403", "Range: bytes=0-9\r\n"), 206);
        let later = DownloadHistory { ranged: 2, requests: 2, ..DownloadHistory::default() };
        assert!(ask("tires-403", range, later).0.starts_with("HTTP/1.1 403"));
        assert!(ask("whole-now-and-then", range, later).0.starts_with("HTTP/1.1 200"));
        assert!(
            ask("one-at-a-time-503", "", DownloadHistory { open: 1, ..later })
                .0
                .starts_with("HTTP/1.1 503")
        );
    }

    #[test]
    fn parts_deviate_as_the_kind_specifies() {
        let range = "Range: bytes=100000-499999\r\n";
        for (kind, wanted) in [
            ("clamp-64k", "Content-Range: bytes 100000-165535/1000000"),
            ("total-unknown", "Content-Range: bytes 100000-499999/*"),
            ("total-is-end", "Content-Range: bytes 100000-499999/500000"),
            ("total-too-large", "/1004096"),
            ("part-overlong", "Content-Range: bytes 100000-504999/1000000"),
            ("part-early", "Content-Range: bytes 95904-499999/1000000"),
            ("part-no-unit", "Content-Range: 100000-499999/1000000"),
            ("part-length-of-whole", "Content-Length: 1000000"),
            ("part-multipart", "multipart/byteranges"),
        ] {
            let (head, _) = ask(kind, range, DownloadHistory::default());
            assert!(head.contains(wanted), "{kind}: {head}");
        }
        let (head, _) = ask("part-no-content-range", range, DownloadHistory::default());
        assert!(!head.contains("Content-Range"));
        let (head, _) = ask("part-two-content-ranges", range, DownloadHistory::default());
        assert_eq!(head.matches("Content-Range").count(), 2);
    }

    #[test]
    fn versions_differ_as_the_kind_specifies() {
        let tag = |kind: &str, before| {
            let (head, _) = ask(kind, "", before);
            head.lines().find_map(|line| line.strip_prefix("ETag: ").map(str::to_owned))
        };
        let second = DownloadHistory { requests: 1, connections: 1, ..DownloadHistory::default() };
        for kind in ["tag-per-answer", "tag-per-connection", "tag-of-nodes", "weak-per-answer"] {
            assert_ne!(tag(kind, DownloadHistory::default()), tag(kind, second), "{kind}");
        }
        assert_eq!(tag("no-validator", second), None);
        let (_, answer) = ask("two-versions", "", second);
        assert_eq!(answer.body, [Piece::File(1, 0..LENGTH)]);
        assert_eq!(status("match-412", "Range: bytes=0-1\r\nIf-Match: \"v1\"\r\n"), 412);
        assert_eq!(status("tag-weak", "If-Match: W/\"v1\"\r\n"), 412);
    }

    #[test]
    fn bodies_end_as_the_kind_specifies() {
        let (head, answer) = ask("chunked", "", DownloadHistory::default());
        assert!(head.contains("chunked") && !head.contains("Content-Length"));
        assert_eq!(answer.body.first(), Some(&Piece::Bytes(b"f4240;a=b\r\n".to_vec())));
        let (head, answer) = ask("until-close", "", DownloadHistory::default());
        assert!(answer.closes && !head.contains("Content-Length"));
        let (head, answer) = ask("length-too-long", "", DownloadHistory::default());
        assert!(answer.closes && head.contains("Content-Length: 1001000"));
        let (_, answer) = ask("breaks-first", "", DownloadHistory::default());
        assert_eq!(answer.breaks_at, Some(400_000));
        let (head, _) = ask("fields-1000", "", DownloadHistory::default());
        assert!(head.matches("Set-Cookie").count() == 1000 && head.len() < 64_000);
    }
}
