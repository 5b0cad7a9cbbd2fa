// SPDX-License-Identifier: Apache-2.0
// DCTCP on a fat-tree in htsim: fat-tree HOSTS MICROSECONDS FLOWS, where the file FLOWS has a flow a
// line: start in ns, from, to, bytes. Links of 10 Gbit/s and 1 us; acknowledgements take the way back.
// The last line is JSON. Linked with what HTSIM_BIN names, never part of slowpath.
#include "config.h"
#include "dctcp.h"
#include "eventlist.h"
#include "fat_tree_topology.h"
#include "network.h"
#include "tcp.h"

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

static uint64_t g_hops = 0;

// At the end of a way: counts the links that packets have passed.
class Counter : public PacketSink
{
  public:
    explicit Counter(uint64_t links) : _links(links), _name("counter")
    {
    }

    void receivePacket(Packet& packet) override
    {
        g_hops += _links;
        packet.sendOn();
    }

    const std::string& nodename() override
    {
        return _name;
    }

  private:
    uint64_t _links;
    std::string _name;
};

int
main(int argc, char** argv)
{
    if (argc != 4)
    {
        std::fprintf(stderr, "fat-tree: three arguments, see the source\n");
        return 2;
    }
    // htsim prints each flow's size.
    std::cout.setstate(std::ios_base::failbit);
    const uint32_t hosts = std::stoul(argv[1]);
    EventList& events = EventList::getTheEventList();
    events.setEndtime(timeFromUs(std::stod(argv[2])));
    Packet::set_packet_size(1460);
    FatTreeTopology topology(hosts, speedFromMbps(10000.0), memFromPkt(250), nullptr, &events, nullptr, ECN);
    TcpRtxTimerScanner timers(timeFromMs(10), events);
    std::map<std::pair<uint32_t, uint32_t>, std::vector<const Route*>*> ways;
    auto way = [&](uint32_t from, uint32_t to, uint64_t number) {
        auto& known = ways[{from, to}];
        if (known == nullptr)
        {
            known = topology.get_paths(from, to);
        }
        auto* route = new Route(*known->at(number % known->size()));
        // A queue and a pipe for each link.
        route->push_back(new Counter(route->size() / 2));
        return route;
    };
    std::ifstream flows(argv[3]);
    uint64_t start, bytes, count = 0;
    uint32_t from, to;
    while (flows >> start >> from >> to >> bytes)
    {
        auto* source = new DCTCPSrc(nullptr, nullptr, events);
        auto* sink = new TcpSink();
        source->set_flowsize(bytes);
        Route* out = way(from, to, count * 2654435761U);
        Route* back = way(to, from, count * 2654435761U + 1);
        out->push_back(sink);
        back->push_back(source);
        timers.registerTcp(*source);
        source->connect(*out, *back, *sink, timeFromNs(double(start)));
        count++;
    }
    const auto before = std::chrono::steady_clock::now();
    while (events.doNextEvent())
    {
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - before;
    std::printf("{\"flows\": %llu, \"seconds\": %.4f, \"packet_hops\": %llu}\n",
                static_cast<unsigned long long>(count), elapsed.count(),
                static_cast<unsigned long long>(g_hops));
    return 0;
}
