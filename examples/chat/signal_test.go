//go:build unix

package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asProgram makes the test binary be the program.
const asProgram = "CHAT_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestASignalEndsTheProgramInAnOrderlyWay(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		program := exec.CommandContext(ctx, os.Args[0], "-addr", "127.0.0.1:0")
		program.Env = append(os.Environ(), asProgram+"=1")
		log, err := program.StderrPipe()
		require.NoError(t, err)
		require.NoError(t, program.Start())
		var address string
		for lines := bufio.NewScanner(log); address == "" && lines.Scan(); {
			if m := regexp.MustCompile(`chatting on (\S+)`).FindStringSubmatch(lines.Text()); m != nil {
				address = m[1]
			}
		}
		p := join(t, address)
		require.NoError(t, program.Process.Signal(sig))
		for err == nil { // what the room says, and then the end instead of a reset
			_, err = p.read()
		}
		assert.EqualError(t, err, "EOF", "%v", sig)
		p.Close() // else the server waits for that
		assert.NoError(t, program.Wait(), "%v", sig)
	}
}
