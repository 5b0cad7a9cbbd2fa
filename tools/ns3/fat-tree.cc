// SPDX-License-Identifier: Apache-2.0
// DCTCP on a fat-tree in ns-3: fat-tree K MICROSECONDS FLOWS [COMPLETIONS], where the file FLOWS
// has a flow a line: start in ns, from, to, bytes. With COMPLETIONS four numbers follow: the ports
// upwards that data takes at the edge and at the aggregation switch, and acknowledgements; and that
// file gets a line for each flow: from the start until the last byte was at the receiver, in ns; 0:
// not done. The links, the buffers and
// TCP are those of crates/slowpath-netsim/examples/bench-sim.rs. The last line is JSON.
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

using namespace ns3;

static uint64_t g_hops = 0;

static void
Hop(Ptr<const Packet>)
{
    g_hops++;
}

// What a flow's receiver has of it.
struct Arrival
{
    uint64_t start;
    uint64_t missing;
    uint64_t took;
};

static std::vector<Arrival> g_arrivals;

static void
Arrived(uint32_t flow, Ptr<const Packet> packet, const Address&)
{
    Arrival& arrival = g_arrivals[flow];
    const uint64_t bytes = packet->GetSize();
    arrival.missing -= std::min(arrival.missing, bytes);
    if (arrival.missing == 0 && arrival.took == 0)
    {
        arrival.took = Simulator::Now().GetNanoSeconds() - arrival.start;
    }
}

// A queue that marks packets that find MARKING others waiting, and drops those that find MOST. What the
// device holds for the line (one packet) belongs to the queue.
class ThresholdQueueDisc : public QueueDisc
{
  public:
    static TypeId GetTypeId()
    {
        static TypeId id = TypeId("ns3::ThresholdQueueDisc").SetParent<QueueDisc>().AddConstructor<ThresholdQueueDisc>();
        return id;
    }

  private:
    static constexpr uint32_t MOST = 249;
    static constexpr uint32_t MARKING = 64;

    bool DoEnqueue(Ptr<QueueDiscItem> item) override
    {
        const uint32_t waiting = GetInternalQueue(0)->GetNPackets();
        if (waiting >= MOST)
        {
            DropBeforeEnqueue(item, "full");
            return false;
        }
        if (waiting >= MARKING)
        {
            // Of no effect on what is not ECN-capable.
            Mark(item, "threshold");
        }
        return GetInternalQueue(0)->Enqueue(item);
    }

    Ptr<QueueDiscItem> DoDequeue() override
    {
        return GetInternalQueue(0)->Dequeue();
    }

    bool CheckConfig() override
    {
        if (GetNInternalQueues() == 0)
        {
            AddInternalQueue(CreateObjectWithAttributes<DropTailQueue<QueueDiscItem>>("MaxSize", StringValue("10000p")));
        }
        return GetNQueueDiscClasses() == 0 && GetNPacketFilters() == 0;
    }

    void InitializeParams() override
    {
    }
};

NS_OBJECT_ENSURE_REGISTERED(ThresholdQueueDisc);

// A link with a subnet of its own; the far end's address and the near end's interface.
struct End
{
    uint32_t interface;
    Ipv4Address peer;
    uint32_t interface_there;
};

int
main(int argc, char** argv)
{
    if (argc != 4 && argc != 5)
    {
        std::fprintf(stderr, "fat-tree: three or four arguments, see the source\n");
        return 2;
    }
    const uint32_t k = std::stoul(argv[1]);
    const uint64_t micros = std::stoull(argv[2]);
    const uint32_t half = k / 2;
    const uint32_t edges = k * half;
    const uint32_t hosts = edges * half;

    const bool completions = argc == 5;
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue("ns3::TcpDctcp"));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1460));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 24));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(completions ? 1 << 18 : 1 << 24));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(10)));
    Config::SetDefault("ns3::TcpSocket::ConnTimeout", TimeValue(MilliSeconds(10)));
    // A lone segment after a timeout would wait for longer than the next one.
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(completions ? 1 : 2));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(40)));
    Config::SetDefault("ns3::RedQueueDisc::UseEcn", BooleanValue(true));
    Config::SetDefault("ns3::RedQueueDisc::UseHardDrop", BooleanValue(false));
    Config::SetDefault("ns3::RedQueueDisc::Gentle", BooleanValue(false));
    Config::SetDefault("ns3::RedQueueDisc::MeanPktSize", UintegerValue(1500));
    Config::SetDefault("ns3::RedQueueDisc::QW", DoubleValue(1));

    NodeContainer host, edge, aggregation, core;
    host.Create(hosts);
    edge.Create(edges);
    aggregation.Create(edges);
    core.Create(half * half);
    Ipv4StaticRoutingHelper routing;
    InternetStackHelper internet;
    internet.SetRoutingHelper(routing);
    internet.InstallAll();

    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue("10Gbps"));
    link.SetChannelAttribute("Delay", StringValue("1us"));
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1p"));
    TrafficControlHelper red;
    red.SetRootQueueDisc("ns3::RedQueueDisc",
                         "MaxSize", StringValue("250p"),
                         "MinTh", DoubleValue(64),
                         "MaxTh", DoubleValue(65),
                         "LinkBandwidth", StringValue("10Gbps"),
                         "LinkDelay", StringValue("1us"));
    TrafficControlHelper threshold;
    threshold.SetRootQueueDisc("ns3::ThresholdQueueDisc");
    TrafficControlHelper& port = completions ? threshold : red;
    TrafficControlHelper large;
    if (completions)
    {
        // Connections take turns at their host's link, as they do here.
        Config::SetDefault("ns3::CoDelQueueDisc::MaxSize", StringValue("100000p"));
        large.SetRootQueueDisc("ns3::FqCoDelQueueDisc",
                               "MaxSize", StringValue("100000p"),
                               "Interval", StringValue("10s"),
                               "Target", StringValue("10s"),
                               "Flows", UintegerValue(65535));
    }
    else
    {
        large.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", StringValue("100000p"));
    }
    Ipv4AddressHelper address("10.0.0.0", "255.255.255.252");
    auto join = [&](Ptr<Node> a, Ptr<Node> b, bool a_is_host) {
        NetDeviceContainer devices = link.Install(a, b);
        (a_is_host ? large : port).Install(devices.Get(0));
        port.Install(devices.Get(1));
        Ipv4InterfaceContainer interfaces = address.Assign(devices);
        address.NewNetwork();
        for (uint32_t n = 0; n < 2; n++)
        {
            devices.Get(n)->TraceConnectWithoutContext("PhyTxEnd", MakeCallback(&Hop));
        }
        End up{interfaces.Get(0).second, interfaces.GetAddress(1), interfaces.Get(1).second};
        End down{interfaces.Get(1).second, interfaces.GetAddress(0), interfaces.Get(0).second};
        return std::make_pair(up, down);
    };
    // One address of a host for each way to it.
    auto alias = [&](uint32_t host, uint32_t at_edge, uint32_t at_aggregation) {
        return Ipv4Address((11U << 24) + (host << 8) + at_edge * half + at_aggregation + 1);
    };
    auto route = [&](Ptr<Node> node, Ipv4Address to, const End& end) {
        routing.GetStaticRouting(node->GetObject<Ipv4>())->AddHostRouteTo(to, end.peer, end.interface);
    };

    std::vector<Ipv4Address> where(hosts);
    std::vector<End> to_host(hosts);
    for (uint32_t n = 0; n < hosts; n++)
    {
        auto [up, down] = join(host.Get(n), edge.Get(n / half), true);
        where[n] = down.peer;
        to_host[n] = down;
        routing.GetStaticRouting(host.Get(n)->GetObject<Ipv4>())->SetDefaultRoute(up.peer, up.interface);
    }
    // up[e][a]: from the e-th edge switch to the a-th aggregation switch of its pod; and back.
    std::vector<std::vector<End>> edge_up(edges), edge_down(edges), core_up(edges), core_down(half * half);
    for (uint32_t e = 0; e < edges; e++)
    {
        for (uint32_t a = 0; a < half; a++)
        {
            auto [up, down] = join(edge.Get(e), aggregation.Get(e / half * half + a), false);
            edge_up[e].push_back(up);
            edge_down[e].push_back(down);
        }
    }
    for (uint32_t c = 0; c < half * half; c++)
    {
        core_down[c].resize(k);
    }
    for (uint32_t a = 0; a < edges; a++)
    {
        for (uint32_t n = 0; n < half; n++)
        {
            const uint32_t c = a % half * half + n;
            auto [up, down] = join(aggregation.Get(a), core.Get(c), false);
            core_up[a].push_back(up);
            core_down[c][a / half] = down;
        }
    }
    // The destination chooses the way up (Al-Fares et al., section 3.3).
    for (uint32_t d = 0; d < hosts; d++)
    {
        const uint32_t home = d / half;
        const uint32_t pod = home / half;
        for (uint32_t s = 0; s < edges; s++)
        {
            route(edge.Get(s), where[d], s == home ? to_host[d] : edge_up[s][d % half]);
            const bool inside = s / half == pod;
            route(aggregation.Get(s), where[d], inside ? edge_down[home][s % half] : core_up[s][d / half % half]);
        }
        for (uint32_t c = 0; c < half * half; c++)
        {
            route(core.Get(c), where[d], core_down[c][pod]);
        }
        for (uint32_t way = 0; completions && way < half * half; way++)
        {
            const uint32_t at_edge = way / half;
            const uint32_t at_aggregation = way % half;
            const Ipv4Address to = alias(d, at_edge, at_aggregation);
            host.Get(d)->GetObject<Ipv4>()->AddAddress(to_host[d].interface_there, Ipv4InterfaceAddress(to, Ipv4Mask("255.255.255.255")));
            for (uint32_t s = 0; s < edges; s++)
            {
                route(edge.Get(s), to, s == home ? to_host[d] : edge_up[s][at_edge]);
                const bool inside = s / half == pod;
                route(aggregation.Get(s), to, inside ? edge_down[home][s % half] : core_up[s][at_aggregation]);
            }
            for (uint32_t c = 0; c < half * half; c++)
            {
                route(core.Get(c), to, core_down[c][pod]);
            }
        }
        PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), 9));
        sink.Install(host.Get(d));
    }

    std::ifstream flows(argv[3]);
    uint64_t start;
    uint64_t bytes;
    uint32_t from;
    uint32_t to;
    uint32_t count = 0;
    while (flows >> start >> from >> to >> bytes)
    {
        uint16_t listens = 9;
        Ipv4Address there = where[to];
        Ipv4Address here;
        if (completions)
        {
            uint32_t a, b, c, d;
            flows >> a >> b >> c >> d;
            there = alias(to, a, b);
            here = alias(from, c, d);
            // A port of its own, so that what arrives there is this flow's.
            listens = 10 + count;
            PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), listens));
            sink.Install(host.Get(to)).Get(0)->TraceConnectWithoutContext("Rx", MakeBoundCallback(&Arrived, count));
            g_arrivals.push_back({start, bytes, 0});
        }
        BulkSendHelper source("ns3::TcpSocketFactory", InetSocketAddress(there, listens));
        source.SetAttribute("MaxBytes", UintegerValue(bytes));
        if (completions)
        {
            source.SetAttribute("Local", AddressValue(InetSocketAddress(here, 0)));
        }
        source.SetAttribute("SendSize", UintegerValue(14600));
        source.Install(host.Get(from)).Start(NanoSeconds(start));
        count++;
    }
    Simulator::Stop(MicroSeconds(micros));
    const auto before = std::chrono::steady_clock::now();
    Simulator::Run();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - before;
    std::printf("{\"flows\": %u, \"seconds\": %.4f, \"packet_hops\": %llu, \"events\": %llu}\n",
                count, elapsed.count(), static_cast<unsigned long long>(g_hops),
                static_cast<unsigned long long>(Simulator::GetEventCount()));
    if (completions)
    {
        std::ofstream out(argv[4]);
        for (const Arrival& arrival : g_arrivals)
        {
            out << arrival.took << "\n";
        }
    }
    Simulator::Destroy();
    return 0;
}
