#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Starts the servers named in the namespace of the server, and waits until they listen.
#
#   R=FOLDER HERE=THIS_FOLDER servers.sh NAME...
#
# They stay; who started this ends them.
set -euo pipefail
# shellcheck source=answers/prelude.sh
. "$HERE/prelude.sh"
mkdir -p "$R/run" "$R/www"

# In the background, with what it says in a file: daemon NAME COMMAND...
daemon() { $S "${@:2}" >"$R/run/$1.log" 2>&1 </dev/null & }

pages() {
    [[ -f $R/www/big ]] || {
        head -c 60000000 /dev/urandom >"$R/www/big"
        head -c 100000 "$R/www/big" >"$R/www/100k"
        echo small >"$R/www/small"
    }
}

postgres() {
    install -d -o postgres "$R/pg"
    su postgres -c "$PG/initdb -D $R/pg -A trust -U postgres" >"$R/run/initdb.log"
    cat >>"$R/pg/postgresql.conf" <<X
listen_addresses='*'
port=15432
unix_socket_directories='$R/pg'
fsync=off
ssl=off
X
    echo "host all all 0.0.0.0/0 trust" >>"$R/pg/pg_hba.conf"
    daemon postgres su postgres -c "exec $PG/postgres -D $R/pg"
    listening 15432
    local sql="create table big as select i, repeat('x', 500) t from generate_series(1, 100000) i"
    # shellcheck disable=SC2086  # several words
    waits $C "$PG/psql" -qh 192.0.2.2 -p 15432 -U postgres -c "$sql"
    $C "$PG/pgbench" -h 192.0.2.2 -p 15432 -U postgres -iq postgres 2>"$R/run/pgbench.log"
    echo "select pg_sleep(0.08);" >"$R/run/sleep.sql"
}

mariadb() {
    install -d -o mysql "$R/my"
    mariadb-install-db --user=mysql --datadir="$R/my" --auth-root-authentication-method=normal >"$R/run/my.log" 2>&1
    daemon mariadb mariadbd --no-defaults --user=mysql --datadir="$R/my" --port=13306 --bind-address=0.0.0.0 \
        --socket="$R/my/s" --pid-file="$R/my/p"
    listening 13306
    waits command mariadb -S "$R/my/s" -u root -e "create user t@'%'; grant all on *.* to t@'%'; create database d; use d;
        create table d.big as select seq, repeat('x', 500) t from seq_1_to_100000"
}

redis() {
    daemon redis redis-server --port 16379 --bind 0.0.0.0 --protected-mode no --save "" --dir "$R/run"
    listening 16379
}

nginx() {
    pages
    mkdir -p "$R/run/nginx"
    chmod -R a+rX "$R/www" "$R/run"
    local kind temporary=""
    for kind in client_body proxy fastcgi uwsgi scgi; do temporary+="${kind}_temp_path $R/run/nginx/$kind; "; done
    cat >"$R/run/nginx.conf" <<X
worker_processes 1; daemon off; user root; pid $R/run/nginx.pid; error_log $R/run/nginx.err;
events { worker_connections 2000; }
http {
  access_log off; sendfile on; keepalive_timeout 300; root $R/www; $temporary
  server { listen 18080 backlog=511; listen [::]:18080; }
  server { listen 18081 sndbuf=16k; }
  server { listen 18082; location / { proxy_pass http://127.0.0.1:18091; proxy_http_version 1.1; } }
  server { listen 18083; location / { proxy_pass http://127.0.0.1:18099; } }
}
X
    daemon nginx nginx -c "$R/run/nginx.conf"
    listening 18080 18081 18082 18083
}

haproxy() {
    cat >"$R/run/haproxy.cfg" <<X
defaults
 mode http
 timeout connect 5s
 timeout client 60s
 timeout server 60s
listen good
 bind *:18100
 server s1 127.0.0.1:18080
listen silent
 bind *:18101
 server s1 203.0.113.9:80
X
    daemon haproxy haproxy -db -f "$R/run/haproxy.cfg"
    listening 18100 18101
}

stunnel() {
    openssl req -x509 -newkey rsa:2048 -nodes -keyout "$R/run/key.pem" -out "$R/run/certificate.pem" -days 30 \
        -subj /CN=server 2>"$R/run/openssl.log"
    cat "$R/run/certificate.pem" "$R/run/key.pem" >"$R/run/both.pem"
    cat >"$R/run/stunnel.conf" <<X
foreground = yes
pid =
cert = $R/run/both.pem
[good]
accept = 18443
connect = 127.0.0.1:18080
[slow]
accept = 18444
connect = 127.0.0.1:18091
X
    daemon stunnel stunnel4 "$R/run/stunnel.conf"
    listening 18443 18444
}

nats() {
    daemon nats nats-server -a 0.0.0.0 -p 14222
    listening 14222
}

rabbitmq() {
    install -d -o rabbitmq "$R/rabbit"
    printf 'loopback_users = none\nlisteners.tcp.default = 15674\n' >"$R/run/rabbit.conf"
    # With a port mapper of its own, and without the machine's settings.
    daemon rabbitmq su rabbitmq -s /bin/bash -c "cd $R/rabbit; HOME=$R/rabbit RABBITMQ_CONFIG_FILE=$R/run/rabbit.conf \
        RABBITMQ_NODENAME=answers@localhost RABBITMQ_DIST_PORT=15679 ERL_EPMD_PORT=14369 \
        RABBITMQ_MNESIA_BASE=$R/rabbit/m RABBITMQ_LOG_BASE=$R/rabbit/l exec rabbitmq-server"
    waits listens 15674 || listening 15674
}

sshd() {
    local key
    for key in host_key client_key; do
        [[ -f $R/run/$key ]] || ssh-keygen -qt ed25519 -N '' -f "$R/run/$key"
    done
    mkdir -p /run/sshd
    daemon sshd /usr/sbin/sshd -D -f /dev/null -p 10022 -h "$R/run/host_key" -o PidFile=none -o UsePAM=no -o StrictModes=no \
        -o "AuthorizedKeysFile=$R/run/client_key.pub" -o "Subsystem=sftp internal-sftp"
    listening 10022
}

iperf3() {
    daemon iperf3 iperf3 -s -p 15201
    listening 15201
}

rsyncd() {
    pages
    mkdir -p "$R/www/tree"
    local number
    for number in {1..400}; do head -c 3000 "$R/www/big" >"$R/www/tree/$number"; done
    printf '[w]\npath=%s\nuid=root\nuse chroot=no\n' "$R/www" >"$R/run/rsyncd.conf"
    daemon rsyncd rsync --daemon --no-detach --port=10873 --config="$R/run/rsyncd.conf"
    listening 10873
}

memcached() {
    daemon memcached memcached -u root -l 0.0.0.0 -p 11311
    listening 11311
}

# What some set-ups need besides servers.
go_programs() {
    mkdir -p "$R/bin"
    (cd "$R/bin" && go build -o go-server "$HERE/http.go" && ln go-server go-client)
}

python_packages() {
    local cache=${XDG_CACHE_HOME:-$HOME/.cache}/slowpath/answers
    [[ -d $cache/lib ]] || $PY -m venv "$cache"
    "$cache/bin/python3" -c "import grpc, pika" 2>/dev/null || "$cache/bin/pip" install -q grpcio pika
    ln -s "$cache" "$R/venv"
}

for server in "$@"; do "$server"; done
