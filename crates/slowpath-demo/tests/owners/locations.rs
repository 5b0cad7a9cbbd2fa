// SPDX-License-Identifier: Apache-2.0
//! Where owners run: cgroups, network namespaces.

use crate::stage::{
    AT, BOTH,
    End::{Client, Server},
    TestCgroup, command, connect, situation, unique,
};
use slowpath_testbed::Namespace;

#[test]
fn a_container_in_nested_cgroups() {
    let test = "a_container_in_nested_cgroups";
    situation(test, BOTH, |stage| {
        let id = format!("{:064x}", std::process::id());
        let slice = unique("machine.slice");
        let path = format!("{slice}/docker-{id}.scope/system.slice/inner.service");
        let Some(cgroup) = TestCgroup::new(test, &path) else {
            return;
        };
        let (_server, _) = stage.listening("server");
        let mut client = stage.actor("client");
        command(&mut client, &format!("join {}", cgroup.path().display()));
        connect(&mut client);
        let owner = stage.is(Client, &client);
        let container = owner.container().expect("is in a container");
        assert_eq!(&*container.id, id);
        assert_eq!(container.runtime.as_deref(), Some("docker"));
        assert_eq!(owner.unit().map(|u| &**u), Some("inner.service"));
        drop(client);
    });
}

/// It enters another network namespace, connects there and comes back.
#[test]
fn opened_in_another_network_namespace() {
    let test = "opened_in_another_network_namespace";
    situation(test, BOTH, |stage| {
        let name = format!("{}-2", stage.namespace.name());
        let other = Namespace::new(&name).expect("makes a namespace");
        let path = |name: &str| format!("/run/netns/{name}");
        let there = format!("enter {}", path(&name));
        let back = format!("enter {}", path(stage.namespace.name()));
        let (mut server, mut client) = (stage.actor("server"), stage.actor("client"));
        command(&mut server, &there);
        let listener = command(&mut server, &format!("listen {AT}"));
        command(&mut client, &there);
        connect(&mut client);
        command(&mut server, &format!("accept {listener}"));
        command(&mut client, &back);
        command(&mut server, &back);
        // It sees connections where it was opened; these are elsewhere.
        stage.netns = other.inode().expect("has a number");
        stage.is(Client, &client);
        stage.is(Server, &server);
    });
}
