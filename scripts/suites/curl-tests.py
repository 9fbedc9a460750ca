#!/usr/bin/env python3
"""Runs the HTTP cases of curl's own test suite with the curl that is installed: directly, and by `thalweg proxy`.

The suite (https://github.com/curl/curl, tests/data) is not part of this project: give a checkout. Its cases hold what curl
is called with, and what a server answers. A server here plays their answers, and both ways must give the same: curl's exit
code, what it writes, and the requests that the server gets. What a hop may change is left out (Connection, Via, framing).
Cases that are about a proxy keep their options for it; the proxy is ours.

    scripts/suites/curl-tests.py CHECKOUT THALWEG [--json] [--test N] [--socks]

Standard output: a table in Markdown; with --json one object. Exit 0: all are the same by the proxy; 1: some are not; 77: there
is no such checkout, no curl, or no THALWEG.
"""
import base64, collections, html, json, os, pathlib, re, shlex, shutil, socket, subprocess, sys, tempfile, threading

HERE = "127.0.0.1"
HOP = {b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"via", b"te", b"transfer-encoding",
       b"content-length", b"upgrade", b"trailer", b"proxy-authenticate"}


class Unfit(Exception):
    """The case cannot be played here; the reason."""


def expand(text):
    """The suite's own shorthands, as tests/testutil.pm has them. Bytes above 127 are Latin-1."""
    unescape = lambda t: re.sub(r"%([0-9A-Fa-f]{2})", lambda m: chr(int(m[1], 16)), t)
    text = re.sub(r"%b64\[(.*?)\]b64%", lambda m: base64.b64encode(unescape(m[1]).encode("latin1")).decode(), text, flags=re.S)
    text = re.sub(r"%hex\[(.*?)\]hex%", lambda m: unescape(m[1]), text, flags=re.S)
    text = re.sub(r"%repeat\[(\d+) x (.*?)\]%", lambda m: unescape(m[2]) * int(m[1]), text, flags=re.S)
    for mark, char in (("SP", " "), ("TAB", "\t"), ("CR", "\r"), ("LT", "<"), ("GT", ">"), ("AMP", "&")):
        text = text.replace("%" + mark, char)
    return text


def conditions(text, features):
    """%if FEATURE … %else … %endif, not nested."""
    out, keep = [], [True]
    for line in text.splitlines(keepends=True):
        word = line.split()
        if word and word[0] == "%if":
            name = word[1]
            keep.append(keep[-1] and ((name[1:] not in features) if name[0] == "!" else (name in features)))
        elif word and word[0] == "%else":
            keep.append(keep[-2] and not keep.pop())
        elif word and word[0] == "%endif":
            keep.pop()
        elif keep[-1]:
            out.append(line)
    return "".join(out)


class Case:
    def __init__(self, path, features):
        self.number = int(path.name[4:])
        self.text = conditions(path.read_bytes().decode("latin1"), features)
        self.keywords = set(self.lines("keywords"))

    def section(self, name):
        """Attributes and content of the first section of this name, or None."""
        found = re.search(r"<%s((?:\s+[\w-]+=(?:\"[^\"]*\"|\S+?))*)\s*>\n?(.*?)</%s>" % (name, name), self.text, re.S)
        if not found:
            return None
        return dict(re.findall(r'([\w-]+)="?([^"\s]*)"?', found[1])), found[2]

    def lines(self, name):
        found = self.section(name)
        return [line.strip() for line in found[1].splitlines() if line.strip()] if found else []

    def of(self, section, values):
        """A section's bytes as the suite makes them."""
        found = self.section(section)
        if not found:
            return None
        attributes, text = found
        text = self.filled(text, values)
        crlf = attributes.get("crlf")
        if crlf == "yes":
            text = re.sub(r"\r?\n", "\r\n", text)
        elif crlf == "headers":
            head, blank, body = text.partition("\n\n")
            text = re.sub(r"\r?\n", "\r\n", head + blank) + body
        if attributes.get("nonewline") == "yes":
            text = text.removesuffix("\n")
        return text.encode("latin1")

    def filled(self, text, values):
        text = expand(text)
        for name, value in values.items():
            text = text.replace("%" + name, value)
        return text

    def fit(self):
        """Raises Unfit, with the reason."""
        servers = set(self.lines("server"))
        if not servers or not servers <= {"http", "http-proxy"}:
            raise Unfit("servers of other protocols than HTTP/1")
        if self.section("tool") or self.section("precheck") or self.section("killserver") or self.section("postcheck"):
            raise Unfit("a program or a step of the suite's own")
        command = self.section("command")
        if not command or command[0].get("type") or not command[1].strip():
            raise Unfit("not a call of curl")
        odd = [line for line in self.lines("servercmd") if line not in ("connection-monitor", "no-expect")]
        if odd:
            raise Unfit("a server that misbehaves on command")
        if any(name in command[1] for name in ("--unix-socket", "--abstract", "--interface", "--http2", "--http3", "--http0.9", "socks", "--haproxy", "--connect-to")):
            raise Unfit("another transport than TCP and HTTP/1")
        if any(name in command[1] for name in ("--libcurl", "_ip}", "_port}", "num_connects", "{header_json}", "connect}", "{size_header}")):
            raise Unfit("it prints what curl itself knows of the connection")


class Server(threading.Thread):
    """Plays the answers of one case at a time."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server((HERE, 0))
        self.port = self.listener.getsockname()[1]
        self.case, self.values, self.seen = None, {}, []
        self.lock = threading.Lock()
        self.start()

    def run(self):
        while True:
            threading.Thread(target=self.serve, args=(self.listener.accept()[0],), daemon=True).start()

    def play(self, case, values):
        with self.lock:
            self.case, self.values, self.seen = case, values, []

    def serve(self, tcp):
        tcp.settimeout(10)
        buffer = b""
        try:
            while True:
                while b"\r\n\r\n" not in buffer:
                    piece = tcp.recv(65536)
                    if not piece:
                        return
                    buffer += piece
                head, buffer = buffer.split(b"\r\n\r\n", 1)
                content, buffer = self.content(tcp, head, buffer)
                with self.lock:
                    self.seen.append((head, content))
                    answer = self.answer(head)
                if answer is None:
                    return
                tcp.sendall(answer)
                if closes(head, answer):
                    return
        except OSError:
            pass
        finally:
            tcp.close()

    def content(self, tcp, head, buffer):
        fields = dict((k.strip().lower(), v.strip()) for k, _, v in (l.partition(b":") for l in head.split(b"\r\n")[1:]))
        if b"expect" in fields:
            tcp.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")

        def more():
            piece = tcp.recv(65536)
            if not piece:
                raise ConnectionError
            return piece
        if b"chunked" in fields.get(b"transfer-encoding", b""):
            content = b""
            while True:
                while b"\r\n" not in buffer:
                    buffer += more()
                size, buffer = buffer.split(b"\r\n", 1)
                size = int(size.split(b";")[0], 16)
                while len(buffer) < size + 2:
                    buffer += more()
                content, buffer = content + buffer[:size], buffer[size + 2:]
                if size == 0:
                    return content, buffer
        length = int(fields.get(b"content-length", b"0"))
        while len(buffer) < length:
            buffer += more()
        return buffer[:length], buffer[length:]

    def answer(self, head):
        """By the number at the end of the path, as tests/server/sws.c does it."""
        target = head.split(b" ")[1].decode("latin1").split("?")[0]
        numbers = re.findall(r"\d+", target.rsplit("/", 1)[-1])
        part = int(numbers[-1]) % 10000 if numbers and int(numbers[-1]) > 10000 else 0
        if re.search(rb"(?im)^authorization: digest", head):
            part += 1000
        elif re.search(rb"(?im)^authorization: ntlm TlRMTVNTUAAB", head):
            part += 1001
        elif re.search(rb"(?im)^authorization: ntlm TlRMTVNTUAAD", head):
            part += 1002
        elif part >= 1000 and re.search(rb"(?im)^authorization: basic", head):
            part += 1
        return self.case.of("data%s" % (part or ""), self.values)


def closes(head, answer):
    top = answer.split(b"\r\n\r\n" if b"\r\n\r\n" in answer else b"\n\n")[0].lower()
    framed = any(word in top for word in (b"content-length", b"transfer-encoding", b" 204", b" 304"))
    return b"swsclose" in answer or b"connection: close" in top or not (framed or head.startswith(b"HEAD "))


def fields(lines):
    """Without those of one hop, and the space around values. A proxy adds Date where there is none (RFC 9110 §6.6.1)."""
    unfolded = re.sub(rb"\r?\n[ \t]+", b" ", b"\n".join(lines)).split(b"\n")
    split = [line.partition(b":") for line in unfolded if line.strip()]
    return sorted(name + b":" + b" ".join(value.split()) for name, _, value in split if name.strip().lower() not in HOP | {b"date"})


def plain_request(head, content):
    """What both ways must agree on: method, target in origin form, fields that no hop may change, content."""
    line, *rest = head.split(b"\r\n")
    method, target = (line.split(b" ") + [b""])[:2]
    target = re.sub(rb"^http://[^/?]*", b"", target) or b"/"
    return [method, b"/" + target if target.startswith(b"?") else target, fields(rest), content]


def plain_output(output):
    """An output whose heads of answers are without what a hop may change: version, fields, order. As are interim ones."""
    def plain(found):
        head = b"\n".join(fields(found[2].splitlines()))
        return b"" if found[1].startswith(b"1") else b"[%s %s]\n" % (found[1], head)
    return re.sub(rb"HTTP/[\d.]+ (\d{3})[^\n]*\n((?:[^\r\n][^\n]*\n)*)\r?\n", plain, output)


PROXY_OPTIONS = {"-x": 1, "--proxy": 1, "--proxy1.0": 1, "--preproxy": 1, "-U": 1, "--proxy-user": 1, "-p": 0, "--proxytunnel": 0,
                 "--proxy-digest": 0, "--proxy-basic": 0, "--proxy-anyauth": 0, "--proxy-ntlm": 0, "--proxy-negotiate": 0,
                 "--proxy-header": 1, "--suppress-connect-headers": 0, "--noproxy": 1}


def without_proxy(words):
    """The same call without any proxy; whether it tunnels."""
    out, words, tunnel = [], iter(words), False
    for word in words:
        name = word.split("=")[0] if word.startswith("--") else word
        takes = PROXY_OPTIONS.get(name)
        tunnel |= name in ("-p", "--proxytunnel")
        if takes is None:
            out.append(word)
        elif takes and "=" not in word:
            next(words, None)
    return out, tunnel


def call(case, curl, server, proxy, scratch, socks):
    """One run of a case; what is to be compared."""
    log = scratch / "log"
    shutil.rmtree(log, ignore_errors=True)
    log.mkdir()
    at = "%s:%d" % (HERE, server.port)
    values = {"HOSTIP": HERE, "CLIENTIP": HERE, "HTTPPORT": str(server.port), "PROXYPORT": "9", "NOLISTENPORT": "9",
              "LOGDIR": str(log), "PWD": str(scratch), "FILE_PWD": str(scratch), "SRCDIR": str(case.source), "TESTNUMBER": str(case.number),
              "VERSION": "0", "USER": "user", "DEV_NULL": "/dev/null"}
    server.play(case, values)
    for attributes, text in re.findall(r"<file\d?((?:\s+[\w-]+=\"[^\"]*\")*)\s*>\n?(.*?)</file\d?>", case.text, re.S):
        name = case.filled(dict(re.findall(r'([\w-]+)="([^"]*)"', attributes)).get("name", ""), values)
        path = pathlib.Path(name)
        if scratch not in path.parents:
            raise Unfit("a file elsewhere")
        path.parent.mkdir(parents=True, exist_ok=True)
        content = case.filled(text, values)
        path.write_bytes((content.removesuffix("\n") if 'nonewline="yes"' in attributes else content).encode("latin1"))
    attributes, text = case.section("command")
    text = case.filled(text, values)
    unknown = re.search(r"%[A-Z][A-Z0-9]{2,}", text)
    if unknown:
        raise Unfit("a server of another kind")
    # Names that nobody resolves stand for the server, whatever their port.
    text = re.sub(r"(?i)\bhttp://(?!%s)([\w.-]*@)?[A-Za-z][\w.-]*(:\d+)?(?=[/?\s\"'#]|$)" % re.escape(HERE), r"http://\g<1>" + at, text)
    words, tunnel = without_proxy(shlex.split(text))
    if not any("://" in w or at in w for w in words):
        raise Unfit("no URL that leads to the server")
    if any(re.search(r"\b(ftp|https|ws|wss|file|dict|telnet)://", w) for w in words):
        raise Unfit("URLs of other schemes")
    call = [curl, "--silent", "--max-time", "8"]
    if attributes.get("option", "").find("no-include") < 0:
        call.append("--include")
    env = {"PATH": os.environ["PATH"], "HOME": str(scratch / "home"), "LC_ALL": "C", "TZ": "UTC"}
    if proxy:
        # Not as an option: --next would end it.
        env["http_proxy"] = ("socks5h://" if socks else "http://") + proxy
        if tunnel and not socks:
            call += ["--proxytunnel", "--suppress-connect-headers"]
    stdin = case.of("stdin", values) or b""
    done = subprocess.run(call + words, cwd=scratch, env=env, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60)
    files = {}
    for path in sorted(log.rglob("*")):
        if path.is_file():
            files[path.name] = plain_output(path.read_bytes())
    with server.lock:
        seen = [plain_request(*one) for one in server.seen]
    return {"exit": done.returncode, "output": plain_output(done.stdout), "files": files, "requests": seen}


def features(curl):
    text = subprocess.run([curl, "--version"], stdout=subprocess.PIPE, text=True).stdout
    known = {"proxy", "http", "cookies", "crypto", "digest", "Mime", "headers-api", "form-api", "aws", "http-into", "xattr"}
    return known | set(text.split())


def main():
    args = [a for a in sys.argv[1:] if not a.startswith("--")]
    only = {int(args.pop())} if "--test" in sys.argv else None
    curl = shutil.which("curl")
    if len(args) < 2 or not pathlib.Path(args[0], "tests/data").is_dir():
        return skip("no checkout of curl is given")
    if not curl or not os.access(args[1], os.X_OK):
        return skip("no curl, or no program %s" % args[1])
    known = features(curl)
    counts, differ, unfit = collections.Counter(), [], collections.Counter()
    with tempfile.TemporaryDirectory() as directory:
        scratch = pathlib.Path(directory).resolve()
        (scratch / "home").mkdir()
        server = Server()
        env = dict(os.environ, HOME=directory, XDG_STATE_HOME=directory, XDG_CACHE_HOME=directory, XDG_CONFIG_HOME=directory)
        proxy = subprocess.Popen([args[1], "proxy", "--listen", HERE + ":0", "--no-relays", "--history", "none", "--json"],
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)
        at = next(json.loads(line)["listen"] for line in proxy.stdout if '"ready"' in line)
        threading.Thread(target=proxy.stdout.read, daemon=True).start()
        try:
            for path in sorted(pathlib.Path(args[0], "tests/data").glob("test[0-9]*"), key=lambda p: int(p.name[4:]) if p.name[4:].isdigit() else 0):
                if not path.name[4:].isdigit() or (only and int(path.name[4:]) not in only):
                    continue
                case = Case(path, known)
                case.source = pathlib.Path(args[0]).resolve() / "tests"
                kind = "about proxies" if any("proxy" in k for k in case.keywords) else "others"
                if "HTTP" not in case.keywords:
                    continue
                counts["cases", kind] += 1
                try:
                    case.fit()
                    direct = call(case, curl, server, None, scratch, False)
                    if not direct["requests"]:
                        raise Unfit("this curl does not ask the server directly")
                    again = call(case, curl, server, None, scratch, False)
                    if direct != again:
                        raise Unfit("its requests differ from call to call")
                    by = call(case, curl, server, at, scratch, "--socks" in sys.argv)
                except Unfit as why:
                    counts["unfit", kind] += 1
                    unfit[str(why)] += 1
                    continue
                except (subprocess.TimeoutExpired, ValueError, KeyError, StopIteration) as why:
                    counts["unfit", kind] += 1
                    unfit["it cannot be played: %s" % type(why).__name__] += 1
                    continue
                if direct == by:
                    counts["same", kind] += 1
                else:
                    what = [k for k in direct if direct[k] != by[k]]
                    counts["differ" if reason(what, direct, by) == OURS else "may", kind] += 1
                    differ.append((case.number, kind, reason(what, direct, by), what, direct, by))
                    if only:
                        print(json.dumps({"direct": direct, "by": by}, indent=1, default=lambda b: b.decode("latin1")), file=sys.stderr)
        finally:
            proxy.terminate()
            proxy.wait()
    report(counts, differ, unfit)
    return 1 if any(why == OURS for _, _, why, *_ in differ) else 0


OURS = "the proxy's affair"


def reason(what, direct, by):
    """Why a case may differ by a proxy; where the proxy has answered itself, in its words."""
    everything = b"".join([by["output"], *by["files"].values()])
    words = re.search(rb"thalweg proxy: ([^\n]*)", everything)
    if words:
        return "refused: " + shortened(words[1].decode())
    if b"this is a proxy:" in everything:
        return "`OPTIONS *` by a proxy is a question to the proxy itself (421)"
    if direct["exit"] == 52:
        return "the server does not answer: the proxy says so (502)"
    if direct["exit"] and by["exit"]:
        return "the answer is broken; curl fails both ways, by another code"
    if what == ["requests"]:
        names = lambda seen, left: [[f for f in one[2] if not f.lower().startswith(left)] + one[:2] + one[3:] for one in seen]
        if names(direct["requests"], b"host:") == names(by["requests"], b"host:"):
            return "a Host that is not the target's, which a proxy replaces (RFC 9112 §3.2.2)"
        if names(direct["requests"], b"expect:") == names(by["requests"], b"expect:"):
            return "curl expects 100 Continue of the proxy, which is HTTP/1.1, where the server is HTTP/1.0"
        if plain_targets(direct["requests"]) == plain_targets(by["requests"]):
            return "curl itself writes the target otherwise for a proxy"
    without = re.sub(rb"(?m)^[\w-]*trailer[\w-]*: .*\r?\n", b"", direct["output"])
    if without.strip() == by["output"].strip() != direct["output"].strip():
        return "trailers for a program that does not ask for them by TE (RFC 9110 §6.5.1)"
    if by["exit"] in (52, 56, 18) and not direct["exit"]:
        return "the content's chunks have bare line feeds, which curl takes (RFC 9112 §7.1: CRLF): it breaks off"
    return OURS


def shortened(words):
    """The proxy's words without addresses and numbers of this run."""
    words = re.sub(r"^(\S+:\d+, by \w+: )", "", words)
    return re.sub(r"`[^`]*`", "`…`", re.sub(r"[\w.-]+:\d+", "HOST", words))


def plain_targets(seen):
    """Requests with targets as curl writes them in both forms: percent-encoded, without an empty query."""
    def plain(target):
        return re.sub(rb"[^!-~]", lambda m: b"%%%02x" % m[0][0], target).rstrip(b"?").lower()
    return [[one[0], plain(one[1])] + one[3:] for one in seen]


def told(what, direct, by):
    """The first difference, short."""
    for key in what:
        if key == "exit":
            return "curl's exit code %s, directly %s" % (by[key], direct[key])
        text = lambda v: json.dumps(v, default=lambda b: b.decode("latin1"))
        one, other = text(direct[key]), text(by[key])
        i = next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
        return "%s: `%s`, directly `%s`" % (key, other[max(0, i - 20):i + 40], one[max(0, i - 20):i + 40])


def report(counts, differ, unfit):
    kinds = ("about proxies", "others")
    if "--json" in sys.argv:
        metrics = {"%s_%s" % (what, kind.replace(" ", "_")): {"unit": "cases", "value": counts[what, kind]}
                   for what in ("cases", "same", "may", "differ", "unfit") for kind in kinds}
        print(json.dumps({"metrics": metrics, "differ": {n: why for n, _, why, *_ in differ}, "unfit": unfit}))
        return
    print("| Cases of curl's suite with HTTP | in all | played | the same by the proxy | differ as they may | differ |\n|---|---|---|---|---|---|")
    for kind in kinds:
        same, may, others = (counts[what, kind] for what in ("same", "may", "differ"))
        print("| %s | %d | %d | %d | %d | %d |" % (kind, counts["cases", kind], same + may + others, same, may, others))
    print("\n| Not played, because of | cases |\n|---|---|")
    for why, n in unfit.most_common():
        print("| %s | %d |" % (why, n))
    if differ:
        print("\n| Differ, because of | cases |\n|---|---|")
        for why, n in collections.Counter(why for _, _, why, *_ in differ).most_common():
            print("| %s | %s |" % (why, ", ".join(str(number) for number, _, one, *_ in differ if one == why)))
    for number, kind, why, what, direct, by in differ:
        if why == OURS:
            print("\n- test%d (%s): %s" % (number, kind, told(what, direct, by).replace("\n", " ")))


def skip(why):
    print("skipped: " + why, file=sys.stderr)
    return 77


if __name__ == "__main__":
    sys.exit(main())
