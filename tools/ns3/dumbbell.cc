// SPDX-License-Identifier: Apache-2.0
// Long flows through one bottleneck in ns-3, with the arguments and the answer of
// crates/slowpath-netsim/examples/dumbbell.rs:
// dumbbell newreno|cubic|dctcp|bbr[/red|/codel|/pie] FLOWS MBIT ACCESS_MBIT DELAY_US BUFFER K SECONDS WARMUP_SECONDS
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

using namespace ns3;

static std::vector<uint32_t> g_samples;

static void
Sample(Ptr<QueueDisc> disc, Ptr<Queue<Packet>> device, double warmup)
{
    if (Simulator::Now().GetSeconds() >= warmup)
    {
        g_samples.push_back(disc->GetNPackets() + device->GetNPackets());
    }
    Simulator::Schedule(MicroSeconds(100), &Sample, disc, device, warmup);
}

int
main(int argc, char** argv)
{
    if (argc != 10)
    {
        std::fprintf(stderr, "dumbbell: nine arguments, see the source\n");
        return 2;
    }
    std::string kind = argv[1];
    const size_t slash = kind.find('/');
    const std::string aqm = slash == std::string::npos ? "" : kind.substr(slash + 1);
    kind = kind.substr(0, slash);
    const int flows = std::stoi(argv[2]);
    const double mbit = std::stod(argv[3]);
    const double access = std::stod(argv[4]);
    const double delay = std::stod(argv[5]);
    const int buffer = std::stoi(argv[6]);
    const int mark = std::stoi(argv[7]);
    const double seconds = std::stod(argv[8]);
    const double warmup = std::stod(argv[9]);

    // TcpNewReno grows by one step an ACK, however many segments that covers: half as fast with delayed
    // ACKs as Linux, and as the other algorithms there.
    const std::string type = kind == "newreno" ? "ns3::TcpLinuxReno"
                             : kind == "cubic"   ? "ns3::TcpCubic"
                             : kind == "bbr"   ? "ns3::TcpBbr"
                                               : "ns3::TcpDctcp";
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue(type));
    Config::SetDefault("ns3::TcpCubic::HyStart", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(2));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 24));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 24));

    auto rate = [](double value) {
        return DataRateValue(DataRate(static_cast<uint64_t>(value * 1e6)));
    };
    const TimeValue wait(NanoSeconds(static_cast<int64_t>(delay * 1e3)));
    PointToPointHelper side;
    side.SetDeviceAttribute("DataRate", rate(access));
    side.SetChannelAttribute("Delay", wait);
    PointToPointHelper middle;
    middle.SetDeviceAttribute("DataRate", rate(mbit));
    middle.SetChannelAttribute("Delay", wait);
    middle.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1p"));

    NodeContainer left, right, routers;
    left.Create(flows);
    right.Create(flows);
    routers.Create(2);
    InternetStackHelper internet;
    internet.InstallAll();

    // Access links have room for a whole window: nothing is lost before the bottleneck.
    TrafficControlHelper large;
    large.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", StringValue("100000p"));
    TrafficControlHelper narrow;
    const std::string limit = std::to_string(buffer - 1) + "p";
    if (kind == "dctcp")
    {
        // RED on the instantaneous length with the two thresholds next to each other.
        Config::SetDefault("ns3::RedQueueDisc::UseEcn", BooleanValue(true));
        Config::SetDefault("ns3::RedQueueDisc::UseHardDrop", BooleanValue(false));
        Config::SetDefault("ns3::RedQueueDisc::Gentle", BooleanValue(false));
        Config::SetDefault("ns3::RedQueueDisc::MeanPktSize", UintegerValue(1500));
        Config::SetDefault("ns3::RedQueueDisc::QW", DoubleValue(1));
        narrow.SetRootQueueDisc("ns3::RedQueueDisc",
                                "MaxSize", StringValue(limit),
                                "MinTh", DoubleValue(mark - 1),
                                "MaxTh", DoubleValue(mark),
                                "LinkBandwidth", rate(mbit),
                                "LinkDelay", wait);
    }
    else if (aqm == "red")
    {
        Config::SetDefault("ns3::RedQueueDisc::MeanPktSize", UintegerValue(1500));
        // Without waiting, as in the paper: with it drops are three times as rare.
        narrow.SetRootQueueDisc("ns3::RedQueueDisc",
                                "MaxSize", StringValue(limit),
                                "Wait", BooleanValue(false),
                                "MinTh", DoubleValue(mark),
                                "MaxTh", DoubleValue(3 * mark),
                                "LInterm", DoubleValue(10),
                                "QW", DoubleValue(1.0 / 512),
                                "Gentle", BooleanValue(true),
                                "LinkBandwidth", rate(mbit),
                                "LinkDelay", wait);
    }
    else if (aqm == "codel")
    {
        narrow.SetRootQueueDisc("ns3::CoDelQueueDisc", "MaxSize", StringValue(limit));
    }
    else if (aqm == "pie")
    {
        narrow.SetRootQueueDisc("ns3::PieQueueDisc",
                                "MaxSize", StringValue(limit),
                                "QueueDelayReference", TimeValue(MilliSeconds(15)),
                                "Tupdate", TimeValue(MilliSeconds(15)),
                                "MaxBurstAllowance", TimeValue(MilliSeconds(150)));
    }
    else
    {
        narrow.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", StringValue(limit));
    }

    Ipv4AddressHelper address("10.0.0.0", "255.255.255.0");
    auto join = [&](PointToPointHelper& link, Ptr<Node> a, Ptr<Node> b, TrafficControlHelper& a_queue) {
        NetDeviceContainer devices = link.Install(a, b);
        QueueDiscContainer discs = a_queue.Install(devices.Get(0));
        large.Install(devices.Get(1));
        Ipv4InterfaceContainer interfaces = address.Assign(devices);
        address.NewNetwork();
        return std::make_tuple(devices, discs, interfaces);
    };
    auto [devices, discs, unused] = join(middle, routers.Get(0), routers.Get(1), narrow);
    std::vector<Ipv4Address> sinks;
    for (int n = 0; n < flows; n++)
    {
        join(side, left.Get(n), routers.Get(0), large);
        sinks.push_back(std::get<2>(join(side, right.Get(n), routers.Get(1), large)).GetAddress(0));
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    ApplicationContainer received;
    for (int n = 0; n < flows; n++)
    {
        PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), 9));
        received.Add(sink.Install(right.Get(n)));
        BulkSendHelper source("ns3::TcpSocketFactory", InetSocketAddress(sinks[n], 9));
        source.SetAttribute("SendSize", UintegerValue(14480));
        source.Install(left.Get(n)).Start(MilliSeconds(n));
    }
    auto device = DynamicCast<PointToPointNetDevice>(devices.Get(0));
    Simulator::Schedule(MicroSeconds(100), &Sample, discs.Get(0), device->GetQueue(), warmup);
    Simulator::Stop(Seconds(seconds));
    Simulator::Run();

    double total = 0;
    double squares = 0;
    for (int n = 0; n < flows; n++)
    {
        const double value = DynamicCast<PacketSink>(received.Get(n))->GetTotalRx() * 8 / seconds / 1e6;
        total += value;
        squares += value * value;
    }
    std::sort(g_samples.begin(), g_samples.end());
    double sum = 0;
    for (uint32_t sample : g_samples)
    {
        sum += sample;
    }
    auto at = [&](double share) { return g_samples[(g_samples.size() - 1) * share]; };
    const QueueDisc::Stats stats = discs.Get(0)->GetStats();
    std::printf("{\"kind\": \"%s\", \"throughput_mbit\": %.4f, \"jain\": %.4f, \"queue_mean\": %.3f, "
                "\"queue_median\": %u, \"queue_p95\": %u, \"queue_max\": %u, \"drops\": %u, \"marks\": %u}\n",
                kind.c_str(), total, total * total / (squares * flows), sum / g_samples.size(),
                at(0.5), at(0.95), at(1.0), stats.nTotalDroppedPackets, stats.nTotalMarkedPackets);
    Simulator::Destroy();
    return 0;
}
