// SPDX-License-Identifier: Apache-2.0
use super::*;

#[test]
fn an_answer_that_refuses_points_is_read() {
    // partial_success { rejected_data_points: 300, error_message: "no" }, by hand.
    let answer = [0x0a, 0x07, 0x08, 0xac, 0x02, 0x12, 0x02, b'n', b'o'];
    assert_eq!(refused(&answer), (300, "no".to_owned()));
    assert_eq!(refused(&[]), (0, String::new()));
    for length in 0..answer.len() {
        let _ = refused(&answer[..length]);
    }
    assert_eq!(refused(b"{\"partialSuccess\":{}}").0, 0);
}

#[test]
fn attributes_from_the_environment_go_first() {
    let resource = Resource::new("h", "1", "i").with("host.name=other,zone=a%2Cb, bad ,=x");
    let get = |key: &str| {
        let pair = resource.attributes.iter().find(|(k, _)| k == key);
        pair.map(|(_, v)| v.as_str())
    };
    assert_eq!(get("host.name"), Some("other"));
    assert_eq!(get("zone"), Some("a,b"));
    assert_eq!(get("service.name"), Some("slowpath-agent"));
    assert_eq!(resource.attributes.len(), 6);
}
