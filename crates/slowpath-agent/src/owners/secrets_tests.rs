// SPDX-License-Identifier: Apache-2.0
//! Sixty ways in which programs are given secrets, and what no rule finds.

use super::without_secrets;

/// As a shell takes them, and as they are kept. The secret is `hunter2`, or begins as tokens do.
const FORMS: [(&str, &str); 60] = [
    // Options by name.
    ("psql -h db --password=hunter2", "psql -h db --password=***"),
    (
        "psql -h db --password hunter2 shop",
        "psql -h db --password *** shop",
    ),
    ("x -password hunter2 y", "x -password *** y"),
    ("x --api-key hunter2 file", "x --api-key *** file"),
    ("x --apikey=hunter2", "x --apikey=***"),
    ("x --auth-token=hunter2 y", "x --auth-token=*** y"),
    ("x --client-secret hunter2", "x --client-secret ***"),
    ("x --credentials=hunter2", "x --credentials=***"),
    ("x --session-cookie hunter2", "x --session-cookie ***"),
    ("x --db.pwd=hunter2", "x --db.pwd=***"),
    (
        "gpg --passphrase 'hunter2 hunter2' file",
        "gpg --passphrase *** file",
    ),
    ("x --password='hunter2 hunter2' y", "x --password=*** y"),
    ("x --password -hunter2 y", "x --password *** y"),
    ("x --password= --port 80", "x --password= *** 80"),
    (
        "openssl rsa -passin pass:hunter2 -in f",
        "openssl rsa -passin *** -in f",
    ),
    (
        "java -Djavax.net.ssl.keyStorePassword=hunter2 M",
        "java -Djavax.net.ssl.keyStorePassword=*** M",
    ),
    ("pwsh x.ps1 -Password:hunter2", "pwsh x.ps1 -Password:***"),
    (
        "xfreerdp /u:ann /password:hunter2",
        "xfreerdp /u:ann /password:***",
    ),
    (
        "kubectl create --from-literal=password=hunter2",
        "kubectl create --from-literal=password=***",
    ),
    (
        "mount -o username=ann,password=hunter2 //h/s /m",
        "mount -o username=ann,password=*** //h/s /m",
    ),
    // Variables and files' keys.
    (
        "env DB_PASSWORD=hunter2 server",
        "env DB_PASSWORD=*** server",
    ),
    (
        "env PGPASSWORD=hunter2 psql shop",
        "env PGPASSWORD=*** psql shop",
    ),
    (
        "docker run -e TOKEN=hunter2 image",
        "docker run -e TOKEN=*** image",
    ),
    (
        "docker run --env=API_KEY=hunter2 image",
        "docker run --env=API_KEY=*** image",
    ),
    (
        "redis-server --requirepass hunter2",
        "redis-server --requirepass ***",
    ),
    // Connection strings.
    (
        "x 'Server=db;User Id=ann;Password=hunter2;Encrypt=true'",
        "x 'Server=db;User Id=ann;Password=***'",
    ),
    (
        "x 'Server=db;Password=\"hunter2 hunter2\"'",
        "x Server=db;Password=***",
    ),
    (
        "psql 'host=db user=ann password=hunter2'",
        "psql 'host=db user=ann password=***'",
    ),
    (
        "psql 'host=db password = hunter2'",
        "psql 'host=db password =***'",
    ),
    (
        "x '{\"user\":\"ann\",\"password\":\"hunter2\"}'",
        "x '{\"user\":\"ann\",\"password\":***'",
    ),
    // Headers.
    (
        "curl -H 'Authorization: Bearer hunter2' http://h/",
        "curl -H Authorization:*** http://h/",
    ),
    (
        "curl -H 'X-Api-Key: hunter2' http://h/",
        "curl -H X-Api-Key:*** http://h/",
    ),
    (
        "curl -HAuthorization:hunter2 http://h/",
        "curl -HAuthorization:*** http://h/",
    ),
    (
        "curl --header='Cookie: sid=hunter2' http://h/",
        "curl --header=Cookie:*** http://h/",
    ),
    (
        "curl -b session_token=hunter2 http://h/",
        "curl -b session_token=*** http://h/",
    ),
    // Short options.
    ("mysql -phunter2 -P 3306 shop", "mysql -p*** -P 3306 shop"),
    (
        "docker login -p hunter2 -u ann",
        "docker login -p *** -u ann",
    ),
    ("zip -P hunter2 a.zip file", "zip -P *** a.zip file"),
    ("7z x -phunter2 a.7z", "7z x -p*** a.7z"),
    ("sshpass -p hunter2 ssh ann@h", "sshpass -p *** ssh ann@h"),
    (
        "sshpass -p 4711 ssh -p 22 ann@h",
        "sshpass -p *** ssh -p *** ann@h",
    ),
    ("redis-cli -h c -a hunter2", "redis-cli -h c -a ***"),
    ("ldapsearch -D cn=x -w hunter2", "ldapsearch -D cn=x -w ***"),
    ("openssl enc -k hunter2 -in f", "openssl enc -k *** -in f"),
    ("curl -u ann:hunter2 http://h/", "curl -u ann:*** http://h/"),
    ("curl -uann:hunter2 http://h/", "curl -uann:*** http://h/"),
    (
        "curl --user ann:hunter2 http://h/",
        "curl --user ann:*** http://h/",
    ),
    (
        "curl --user=ann:hunter2 http://h/",
        "curl --user=ann:*** http://h/",
    ),
    (
        "curl -U ann:hunter2 -x p http://h/",
        "curl -U ann:*** -x p http://h/",
    ),
    (
        "smbclient -U ann%hunter2 //h/s",
        "smbclient -U ann%*** //h/s",
    ),
    // Addresses.
    ("curl https://ann:hunter2@h/p", "curl https://ann:***@h/p"),
    (
        "x redis://:hunter2@cache:6379/0",
        "x redis://:***@cache:6379/0",
    ),
    (
        "x postgres://ann:hunter2@hunter2@db/shop",
        "x postgres://ann:***@db/shop",
    ),
    (
        "git clone https://ghp_0123456789abcdef@github.com/o/r",
        "git clone https://***@github.com/o/r",
    ),
    (
        "rsync ann:hunter2@h::module /to",
        "rsync ann:***@h::module /to",
    ),
    (
        "curl 'http://h/p?user=ann&api_key=hunter2'",
        "curl http://h/p?user=ann&api_key=***",
    ),
    (
        "curl 'http://h/p?sv=1&sig=hunter2'",
        "curl http://h/p?sv=1&sig=***",
    ),
    // By what they look like.
    ("x AKIAIOSFODNN7EXAMPLEQ", "x ***"),
    ("x eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmVk", "x ***"),
    // Within a script.
    (
        "sh -c 'mysql -phunter2 shop && echo done'",
        "sh -c 'mysql -p*** shop && echo done'",
    ),
];

#[test]
fn secrets_are_hidden_and_nothing_else() {
    for (line, expected) in FORMS {
        assert_eq!(without_secrets(line), expected, "{line}");
        assert!(!expected.contains("hunter2"), "{expected}");
    }
}

#[test]
fn what_is_no_secret_stays() {
    for line in [
        "ssh -p22 host",
        "ssh -p 22 host",
        "docker run -p 127.0.0.1:8080:80/tcp -u 1000:1000 image",
        "mkdir -p /srv/shop",
        "java -jar /srv/shop-1.2.jar --port 80",
        "nginx: worker process",
        "postgres: ann shop 10.0.0.1(4711) idle",
        "x --listen auth.example:443 token-service:8080/path",
        "docker run -v /etc/keys:/keys image",
        "rsync git@host:path 'a b'",
        "psql --no-password shop",
        "x it's",
    ] {
        assert_eq!(without_secrets(line), line);
    }
}

/// As docs/reference/owners.md says.
#[test]
fn what_no_rule_finds_is_documented() {
    for line in [
        "htpasswd -b file ann hunter2",
        "wpa_passphrase network hunter2",
        "vault login hunter2",
        "sqlplus ann/hunter2@db",
        "lftp -u ann,hunter2 h",
        "docker login -p 4711",
        "mysql -p/hunter2",
        "snmpwalk -c hunter2 h",
        "x correcthorsebatterystaple",
        "x https://h/reset/hunter2",
    ] {
        assert_eq!(without_secrets(line), line);
    }
}

#[test]
fn a_title_is_judged_by_its_words() {
    let title = "worker: Authorization: Bearer hunter2 queue";
    assert_eq!(
        without_secrets(title),
        "worker: Authorization: *** *** queue"
    );
}

#[test]
fn nested_scripts_end() {
    let mut line = "x --password hunter2".to_owned();
    for _ in 0..6 {
        line = slowpath_model::join_arguments(&["sh", "-c", &line]);
    }
    assert!(!without_secrets(&line).contains("hunter2"));
    let _ = without_secrets(&"'\"\\ ".repeat(2_000));
}
