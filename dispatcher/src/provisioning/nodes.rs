//! The nodes of a cluster, of any kind.

use coswitch_daemon::pki::Identity;
use coswitch_policies::NodeId;
use serde::{Deserialize, Serialize};

use super::{
    Address, Installed, NodeSpec, Programs, Provisioning, ProvisioningError,
    hosts::{HostRequest, Hosts, HostsState},
    slurm::{Slurm, SlurmRequest, SlurmState},
    virtual_nodes::{VirtualNodes, VirtualRequest, VirtualState},
};

pub enum Nodes {
    Virtual(VirtualNodes),
    Hosts(Hosts),
    Slurm(Box<Slurm>),
}

#[derive(Clone, Debug)]
pub enum NodesRequest {
    Virtual(VirtualRequest),
    Hosts(HostRequest),
    Slurm(SlurmRequest),
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodesState {
    Virtual(VirtualState),
    Hosts(HostsState),
    Slurm(SlurmState),
}

/// What all kinds do, each in its way.
macro_rules! each {
    ($self:expr, $nodes:ident => $does:expr) => {
        match $self {
            Nodes::Virtual($nodes) => $does,
            Nodes::Hosts($nodes) => $does,
            Nodes::Slurm($nodes) => $does,
        }
    };
}

impl Provisioning for Nodes {
    type Request = NodesRequest;
    type State = NodesState;

    fn start(request: &NodesRequest) -> Result<Self, ProvisioningError> {
        match request {
            NodesRequest::Virtual(request) => VirtualNodes::start(request).map(Self::Virtual),
            NodesRequest::Hosts(request) => Hosts::start(request).map(Self::Hosts),
            NodesRequest::Slurm(request) => Slurm::start(request).map(|nodes| Self::Slurm(Box::new(nodes))),
        }
    }

    fn adopt(state: NodesState) -> Result<(Self, Vec<NodeId>), ProvisioningError> {
        Ok(match state {
            NodesState::Virtual(state) => {
                let (nodes, gone) = VirtualNodes::adopt(state)?;
                (Self::Virtual(nodes), gone)
            }
            NodesState::Hosts(state) => {
                let (nodes, gone) = Hosts::adopt(state)?;
                (Self::Hosts(nodes), gone)
            }
            NodesState::Slurm(state) => {
                let (nodes, gone) = Slurm::adopt(state)?;
                (Self::Slurm(Box::new(nodes)), gone)
            }
        })
    }

    fn restart(&self, node: NodeId) -> Result<Address, ProvisioningError> {
        each!(self, nodes => nodes.restart(node))
    }

    fn bring(&self, node: NodeId, installed: &Installed) -> Result<Programs, ProvisioningError> {
        each!(self, nodes => nodes.bring(node, installed))
    }

    fn remove(state: NodesState) -> Result<(), ProvisioningError> {
        match state {
            NodesState::Virtual(state) => VirtualNodes::remove(state),
            NodesState::Hosts(state) => Hosts::remove(state),
            NodesState::Slurm(state) => Slurm::remove(state),
        }
    }

    fn state(&self) -> NodesState {
        match self {
            Self::Virtual(nodes) => NodesState::Virtual(nodes.state()),
            Self::Hosts(hosts) => NodesState::Hosts(hosts.state()),
            Self::Slurm(slurm) => NodesState::Slurm(slurm.state()),
        }
    }

    fn leave(self) {
        each!(self, nodes => nodes.leave());
    }

    fn nodes(&self) -> &[NodeSpec] {
        each!(self, nodes => nodes.nodes())
    }

    fn addresses(&self) -> Vec<Address> {
        each!(self, nodes => nodes.addresses())
    }

    fn identity(&self) -> &Identity {
        each!(self, nodes => nodes.identity())
    }

    fn note_master(&self) -> Result<(), ProvisioningError> {
        each!(self, nodes => nodes.note_master())
    }

    fn end(self) -> Result<(), ProvisioningError> {
        each!(self, nodes => nodes.end())
    }

    fn end_parked(self) -> Result<(), ProvisioningError> {
        each!(self, nodes => nodes.end_parked())
    }
}
