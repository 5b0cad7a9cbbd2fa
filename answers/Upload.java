// SPDX-License-Identifier: Apache-2.0

import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

/** Upload PORT MS: reads what is uploaded 16 KiB at a time, and works so long on each. */
public class Upload {
    public static void main(String[] arguments) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(Integer.parseInt(arguments[0])), 50);
        server.createContext("/", exchange -> {
            byte[] part = new byte[16384];
            try {
                while (exchange.getRequestBody().read(part) > 0) {
                    Thread.sleep(Long.parseLong(arguments[1]));
                }
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
            }
            exchange.sendResponseHeaders(200, -1);
            exchange.close();
        });
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.start();
    }
}
