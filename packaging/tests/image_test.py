# SPDX-License-Identifier: Apache-2.0
"""The image's files run as the manifest says, and the manifest says what Kubernetes knows."""

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import unittest

from places import Bare, IMAGE, ROOT, STATIC, await_that, built, run, features_on_host

try:
    import yaml
except ImportError:
    # Debian's, where another Python stands before Debian's.
    sys.path.append("/usr/lib/python3/dist-packages")
    try:
        import yaml
    except ImportError:
        yaml = None

MANIFEST = ROOT / "packaging/kubernetes/daemonset.yaml"
SERVER_MANIFEST = ROOT / "packaging/kubernetes/server.yaml"
RECIPE = ROOT / "packaging/container/Containerfile"


def of_kind(manifest, kind):
    """The only object of this kind in a manifest."""
    if yaml is None:
        raise unittest.SkipTest("no python3-yaml here")
    documents = list(yaml.safe_load_all(manifest.read_text()))
    [found] = [d for d in documents if d["kind"] == kind]
    return found


def daemonset():
    """The manifest's DaemonSet."""
    return of_kind(MANIFEST, "DaemonSet")


def pod():
    """Its pod, and the only container in it."""
    spec = daemonset()["spec"]["template"]["spec"]
    [container] = spec["containers"]
    return spec, container


class Traffic:
    """A connection over loopback on which something happens now and then."""

    def __enter__(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.client = socket.create_connection(listener.getsockname())
            self.server, _ = listener.accept()
        self.port = self.server.getsockname()[1]
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.exchange)
        self.thread.start()
        return self

    def exchange(self):
        while not self.ended.wait(0.02):
            self.client.sendall(b"x")
            self.server.recv(1)

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        self.client.close()
        self.server.close()


class Manifest(unittest.TestCase):
    def test_it_is_what_kubernetes_knows(self):
        if not shutil.which("kubernetes-validate"):
            self.skipTest("no kubernetes-validate here (make check-install gets it)")
        for manifest in (MANIFEST, SERVER_MANIFEST):
            done = subprocess.run(["kubernetes-validate", "--strict", manifest],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertEqual(done.returncode, 0, done.stdout)

    def test_the_selector_selects_the_pods(self):
        spec = daemonset()["spec"]
        labels = spec["template"]["metadata"]["labels"]
        for key, value in spec["selector"]["matchLabels"].items():
            self.assertEqual(labels.get(key), value)

    def test_every_mount_has_its_volume(self):
        spec, container = pod()
        volumes = {v["name"] for v in spec["volumes"]}
        self.assertEqual({m["name"] for m in container["volumeMounts"]}, volumes)

    def test_it_sees_the_node_and_no_more_than_it_needs(self):
        spec, container = pod()
        security = container["securityContext"]
        self.assertTrue(spec["hostPID"])
        self.assertFalse(spec.get("hostNetwork", False))
        self.assertFalse(spec["automountServiceAccountToken"])
        self.assertFalse(security["privileged"])
        self.assertFalse(security["allowPrivilegeEscalation"])
        self.assertTrue(security["readOnlyRootFilesystem"])
        self.assertEqual(security["capabilities"]["drop"], ["ALL"])
        self.assertNotIn("SYS_ADMIN", security["capabilities"]["add"])
        for kind in ("cpu", "memory"):
            self.assertIn(kind, container["resources"]["limits"])

    def test_the_probe_asks_a_port_that_is_there(self):
        _, container = pod()
        probe = container.get("readinessProbe", {}).get("httpGet")
        if not probe:
            self.skipTest("no readiness probe over HTTP")
        ports = {p["name"]: p["containerPort"] for p in container["ports"]}
        self.assertTrue(any(a.endswith(f":{ports[probe['port']]}") for a in container["args"]))


    def test_the_server_has_no_rights_and_a_volume(self):
        spec = of_kind(SERVER_MANIFEST, "StatefulSet")["spec"]
        pod = spec["template"]["spec"]
        self.assertTrue(pod["securityContext"]["runAsNonRoot"])
        self.assertFalse(pod["automountServiceAccountToken"])
        claimed = {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
        for container in pod["initContainers"] + pod["containers"]:
            security = container["securityContext"]
            self.assertTrue(security["readOnlyRootFilesystem"])
            self.assertEqual(security["capabilities"], {"drop": ["ALL"]})
            self.assertEqual({m["name"] for m in container["volumeMounts"]}, claimed)
        service = of_kind(SERVER_MANIFEST, "Service")["spec"]
        labels = spec["template"]["metadata"]["labels"]
        self.assertEqual(labels, labels | service["selector"])


class Image(unittest.TestCase):
    def lay(self, root):
        """Does what the recipe's COPY lines do."""
        for source, to in re.findall(r"^COPY (\S+) (\S+)$", RECIPE.read_text(), re.MULTILINE):
            target = root / to.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if (IMAGE / source).is_dir():
                shutil.copytree(IMAGE / source, target, dirs_exist_ok=True)
            else:
                shutil.copy(IMAGE / source, target)

    def ask(self, pid, path, port=9464):
        """What the agent or the server answers, in its own network namespace."""
        script = ("import socket, sys\n"
                  "s = socket.create_connection(('127.0.0.1', int(sys.argv[2])), 5)\n"
                  "s.sendall(b'GET ' + sys.argv[1].encode() + b' HTTP/1.0\\r\\n\\r\\n')\n"
                  "sys.stdout.buffer.write(s.makefile('rb').read())")
        return subprocess.run(
            ["nsenter", "-t", str(pid), "-n", sys.executable, "-c", script, path, str(port)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout

    def test_the_agent_runs_with_the_manifests_capabilities(self):
        built(STATIC)
        _, container = pod()
        if features_on_host()[0] != "bpf":
            self.skipTest("no BPF tier on this machine")
        entry = json.loads(re.search(r"^ENTRYPOINT (.+)$", RECIPE.read_text(), re.MULTILINE)[1])
        mounts = [m["mountPath"].lstrip("/") for m in container["volumeMounts"]]
        capabilities = container["securityContext"]["capabilities"]["add"]
        # The node's /proc is what hostPID gives; the pod's network is its own.
        with Bare(*[m for m in mounts if not m.startswith("sys/")]) as bare, Traffic() as traffic:
            self.lay(bare.path)
            with bare.start(*entry, *container["args"], capabilities=capabilities,
                            own_network=True, writable="var/lib/slowpath") as agent:
                lines = []
                reader = threading.Thread(target=lambda: lines.extend(agent.stdout))
                reader.start()
                await_that("the agent has started", lambda: lines or agent.poll() is not None)
                # From inside the pod's network, as the kubelet would.
                run("nsenter", "-t", str(agent.pid), "-n", "ip", "link", "set", "lo", "up")
                for probe in ("readinessProbe", "livenessProbe"):
                    path = container[probe]["httpGet"]["path"]
                    await_that(f"{path} answers", lambda: "200 OK" in self.ask(agent.pid, path))
                await_that("it has polled", lambda: re.search(
                    r"^slowpath_polls_total [2-9]", self.ask(agent.pid, "/metrics"), re.MULTILINE))
                agent.send_signal(signal.SIGTERM)
                self.assertEqual(agent.wait(timeout=60), 0, lines)
                reader.join()
            said = "".join(lines)
            counted = re.search(r"bpf tier, (\d+) of (\d+) features", said)
            # All but the one that CAP_NET_ADMIN is for.
            self.assertTrue(counted and int(counted[1]) + 1 == int(counted[2]), said)
            self.assertIn("without conntrack: ", said)
            # A connection of the node, older than the agent, is in the log, with its process.
            output, status = bare.run(
                *entry, "report", "--json", "--since", "1h", "--log", "/var/lib/slowpath",
                "--by", "application", f"sport = :{traffic.port}")
            self.assertEqual(status, 0, output)
            self.assertIn("python", output)

    def test_the_server_runs_without_capabilities(self):
        built(STATIC)
        pod = of_kind(SERVER_MANIFEST, "StatefulSet")["spec"]["template"]["spec"]
        [init], [server] = pod["initContainers"], pod["containers"]
        entry = json.loads(re.search(r"^ENTRYPOINT (.+)$", RECIPE.read_text(), re.MULTILINE)[1])
        state = "var/lib/slowpath-server"
        with Bare(state) as bare:
            self.lay(bare.path)
            # A pod's every start: the second leaves what is there.
            for _ in range(2):
                output, status = bare.run(*entry, *init["args"], capabilities=[], writable=state)
                self.assertEqual(status, 0, output)
            with bare.start(*entry, *server["args"], capabilities=[], own_network=True,
                            writable=state) as running:
                await_that("it has started", lambda: running.poll() is not None
                           or (bare.path / state / "state/admin.sock").exists())
                run("nsenter", "-t", str(running.pid), "-n", "ip", "link", "set", "lo", "up")
                path = server["readinessProbe"]["httpGet"]["path"]
                await_that("it is ready", lambda: "200 OK" in self.ask(running.pid, path, 7444))
                output, status = bare.run(*entry, "server", "invite", "node-1",
                                          "--dir", f"/{state}/state")
                self.assertEqual((status, output[:11]), (0, "sp1.node-1."), output)
                running.send_signal(signal.SIGTERM)
                self.assertEqual(running.wait(timeout=60), 0)

    def test_the_example_configuration_is_good(self):
        built(STATIC)
        with Bare("var/lib/slowpath") as bare:
            self.lay(bare.path)
            words = ("/usr/bin/slowpath", "agent", "--config", "/etc/slowpath/agent.toml", "--check")
            output, status = bare.run(*words)
            self.assertEqual(status, 0, output)


if __name__ == "__main__":
    unittest.main()
