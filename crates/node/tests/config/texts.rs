//! The text of errors, as people read it.

use thalweg_node::config::Config;

fn told(text: &str) -> String {
    let problems = Config::parse(text).unwrap_err();
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn unknown_keys_and_words() {
    insta::assert_snapshot!(told(
        "[relay]\niddle = \"5 s\"\n[metrics]\nzzz = 1\n[log]\nformat = \"jsn\""
    ));
}

#[test]
fn values_of_the_wrong_kind() {
    insta::assert_snapshot!(told(
        "listen = 7373\n[relay]\nidle = 5\nmax_connections = \"many\"\n\
         enabled = \"yes\"\nallow_to = [\"10.0.0.0/33\", 7]\nports = [0]\n\
         [relay.quota]\nrate = \"5\"\nconnections = -1\n[socks]\nlisten = \"localhost:1080\"\n\
         avoid = [\"Country\"]"
    ));
}

#[test]
fn values_that_cannot_be_meant() {
    insta::assert_snapshot!(told(
        "listen = []\n[relay]\nidle = \"0 s\"\nmax_connections = 0\nports = [25]\n\
         [relay.quota]\nrate = \"0 bit/s\"\n[socks]\nvia = [\"a+b+c+d\", \"r 1\", \"x:0\"]\n\
         [metrics]\nlisten = \"0.0.0.0:9373\"\n[oracle]\nvalidity = \"0 s\"\n\
         [[oracle.rule]]\nclient = \"guest\"\n[[oracle.rule]]\nports = [\"25\"]"
    ));
}

#[test]
fn text_that_is_no_toml() {
    insta::assert_snapshot!(told("[relay\nidle == 5\n[relay]\n[relay]\n"));
}

#[test]
fn one_address_for_two_purposes() {
    insta::assert_snapshot!(told(
        "listen = [\"127.0.0.1:1080\"]\n[socks]\nlisten = \"127.0.0.1:1080\"\n\
         [metrics]\nlisten = \"127.0.0.1:1080\""
    ));
}

#[test]
fn interfaces_that_cannot_be_meant() {
    insta::assert_snapshot!(told(
        "[interfaces]\nschedule = \"round-robbin\"\naffinity = 10\n\
         [[interfaces.policy]]\nname = \"lte0\"\ntier = \"bakup\"\n\
         [[interfaces.policy]]\nname = \"lte0\"\ncap = \"0 B\"\nreset_day = 32\nprice = \"5\"\n\
         [[interfaces.policy]]\nname = \"\"\nrate_limit = \"0 bit/s\"\nreset_day = 1\n\
         [[interfaces.rule]]\nprocess = \"zoom\"\n\
         [[interfaces.rule]]\nonly = [\"a\"]\navoid = [\"b\"]\n\
         [[interfaces.rule]]\nprocess = \"*oom\"\ndestination = \"exa*ple.org\"\nonly = [\"a\"]"
    ));
}

#[test]
fn one_table_where_a_list_of_them_is_meant() {
    let said = told("[cast]\ninbox = { path = \"/srv/inbox\", from = [\"*\"] }\n");
    assert!(said.contains("cast.inbox: a list is expected"), "{said}");
    assert!(said.contains("[[cast.inbox]]"), "{said}");
}
