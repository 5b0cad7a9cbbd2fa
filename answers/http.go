// SPDX-License-Identifier: Apache-2.0

// An HTTP server that takes its time, and a client that measures it.
//
//	go-server PORT MS            answers each request after MS
//	go-client URL PAUSE_MS N     N clients; each second the mean time of a request, in ms
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return value
}

func serve(port string, think time.Duration) error {
	body := make([]byte, 1000)
	return http.ListenAndServe(":"+port, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(think)
		w.Write(body)
	}))
}

func ask(url string, pause time.Duration, took chan<- time.Duration) {
	client := &http.Client{Transport: &http.Transport{}}
	for {
		began := time.Now()
		response, err := client.Get(url)
		if err != nil {
			panic(err)
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		took <- time.Since(began)
		time.Sleep(pause)
	}
}

func main() {
	if filepath.Base(os.Args[0]) == "go-server" {
		panic(serve(os.Args[1], time.Duration(number(os.Args[2]))*time.Millisecond))
	}
	took := make(chan time.Duration)
	for range make([]int, number(os.Args[3])) {
		go ask(os.Args[1], time.Duration(number(os.Args[2]))*time.Millisecond, took)
	}
	total, requests, shown := time.Duration(0), 0, time.Now()
	for duration := range took {
		total, requests = total+duration, requests+1
		if time.Since(shown) > time.Second {
			fmt.Printf("mean %.3f ms\n", float64(total.Microseconds())/1e3/float64(requests))
			total, requests, shown = 0, 0, time.Now()
		}
	}
}
