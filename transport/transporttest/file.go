package transporttest

import (
	"io"
	"os"
	"path/filepath"

	"github.com/weirnet/weir/transport"
)

func fileClaims() []claim {
	claims := []claim{
		{name: "SendFile sends a whole file, small or large", run: fileWhole},
		{name: "SendFile sends Length bytes from Offset on", run: filePart},
		{name: "SendFile of nothing completes with N 0", run: fileNothing},
		{name: "a file that ends early fails with io.ErrUnexpectedEOF, after what there was", run: fileEndsEarly},
		{name: "Send and SendFile in turn keep their order", run: fileInTurn},
		{name: "SendFile while a Send is under way, and the reverse, complete with ErrBusy", run: fileBusy},
		{
			name: "a SendFile to a peer that never reads can be cancelled, and what went out is a prefix",
			run:  fileCancelled,
		},
		{name: "a SendFile to a peer that never reads can be closed and does not spin", run: fileClosed},
		{name: "the file of a SendFile may be closed and removed after its last completion", run: fileClosedAfterwards},
		{name: "FileSent counts bytes of Sent", run: fileCounted},
	}
	for i := range claims {
		claims[i].needs = needsSendFile
	}
	return claims
}

// file returns an open file with n bytes.
func (r *rig) file(seed uint64, n int) (*os.File, []byte) {
	r.Helper()
	p := payload(seed, n)
	name := filepath.Join(r.TempDir(), "file")
	r.must("WriteFile", os.WriteFile(name, p, 0o600))
	f, err := os.Open(name)
	r.must("Open", err)
	r.Cleanup(func() { f.Close() })
	return f, p
}

func (s sock) sendFile(f *os.File, offset, length int64) *call {
	return s.e.submit(transport.Op{
		Kind: transport.SendFile, Handle: s.h, File: &transport.FileRange{File: f, Offset: offset, Length: length},
	})
}

func fileWhole(r *rig) {
	for _, n := range []int{1, 5000, 64 << 10, 8 << 20} {
		l := r.link()
		f, want := r.file(uint64(n), n)
		recv := l.b.recv(n)
		send := l.a.sendFile(f, 0, int64(n))
		r.done(send, recv)
		r.must("SendFile", send.err)
		r.same("the file", recv.data, want)
	}
	l := r.tightLink()
	f, want := r.file(1, 1<<20)
	recv := l.b.recv(len(want))
	r.done(l.a.sendFile(f, 0, int64(len(want))), recv)
	r.same("the file over a narrow connection", recv.data, want)
}

func filePart(r *rig) {
	l := r.link()
	f, want := r.file(1, 300_000)
	for _, part := range [][2]int{{0, 1}, {1, 1}, {4095, 2}, {100_000, 100_000}, {299_999, 1}} {
		recv := l.b.recv(part[1])
		send := l.a.sendFile(f, int64(part[0]), int64(part[1]))
		r.done(send, recv)
		r.must("SendFile", send.err)
		r.same("the part of the file", recv.data, want[part[0]:part[0]+part[1]])
	}
}

func fileNothing(r *rig) {
	l := r.link()
	f, _ := r.file(1, 100)
	for _, offset := range []int64{0, 50, 100} {
		send := l.a.sendFile(f, offset, 0)
		r.done(send)
		r.must("SendFile of nothing", send.err)
	}
	r.runFlows(r.flow(l.a, l.b, 1, 1000))
}

func fileEndsEarly(r *rig) {
	for _, missing := range []int64{1, 100_000} {
		l := r.link()
		f, want := r.file(1, 150_000)
		recv := l.b.recv(0)
		send := l.a.sendFile(f, 50_000, 100_000+missing)
		r.done(send)
		r.wantErr("SendFile", send.err, io.ErrUnexpectedEOF)
		r.done(l.a.close(), recv)
		r.same("what there was", recv.data, want[50_000:])
		if send.n != 100_000 {
			r.Fatalf("the SendFile told of %d bytes", send.n)
		}
	}
}

func fileInTurn(r *rig) {
	l := r.tightLink()
	f, p := r.file(1, 200_000)
	var want []byte
	recv := l.b.recv(0)
	for i := range 10 {
		head := payload(uint64(i), 100+i*1000)
		r.done(l.a.send(head))
		r.done(l.a.sendFile(f, int64(i*1000), 100_000))
		want = append(append(want, head...), p[i*1000:i*1000+100_000]...)
	}
	r.done(l.a.closeWrite(), recv)
	r.same("heads and files", recv.data, want)
}

func fileBusy(r *rig) {
	l := r.links(2, smallBuffers())
	f, p := r.file(1, 4<<20)
	send, want := l[0].a.blockedSend(1)
	second := l[0].a.sendFile(f, 0, 100)
	r.done(second)
	r.wantErr("SendFile during a Send", second.err, transport.ErrBusy)
	file := l[1].a.sendFile(f, 0, int64(len(p)))
	r.quiet()
	third := l[1].a.send(p[:100])
	r.done(third)
	r.wantErr("Send during a SendFile", third.err, transport.ErrBusy)
	recvSend, recvFile := l[0].b.recv(len(want)), l[1].b.recv(len(p))
	r.done(send, file, recvSend, recvFile)
	r.same("bytes of the Send", recvSend.data, want)
	r.same("bytes of the SendFile", recvFile.data, p)
}

// blockedFile is blockedSend with a file.
func (r *rig) blockedFile(s sock) (*call, []byte) {
	r.Helper()
	f, p := r.file(1, 4<<20)
	send := s.sendFile(f, 0, int64(len(p)))
	r.quiet()
	if send.done {
		r.Fatalf("a SendFile to a peer that does not read ended: %v", send)
	}
	return send, p
}

func fileCancelled(r *rig) {
	l := r.tightLink()
	send, want := r.blockedFile(l.a)
	cancel := l.a.e.cancel(send)
	r.done(cancel, send)
	r.must("Cancel", cancel.err)
	r.wantErr("the SendFile", send.err, transport.ErrCanceled)
	recv := l.b.recv(0)
	r.done(l.a.close(), recv)
	r.prefix("what went out of a cancelled SendFile", recv.data, want)
	if len(recv.data) < send.n {
		r.Fatalf("the SendFile told of %d bytes, the peer got %d", send.n, len(recv.data))
	}
}

func fileClosed(r *rig) {
	l := r.tightLink()
	send, want := r.blockedFile(l.a)
	r.spins(l.a.e, "a SendFile is blocked")
	closing := l.a.close()
	r.done(send, closing)
	r.wantErr("the SendFile", send.err, transport.ErrCanceled)
	recv := l.b.recv(0)
	r.done(recv)
	r.prefix("what went out of a closed SendFile", recv.data, want)
}

func fileCounted(r *rig) {
	l := r.link()
	f, p := r.file(1, 100_000)
	before := l.a.e.tr.Stats()
	recv := l.b.recv(len(p) + 1000)
	r.done(l.a.send(p[:1000]))
	r.done(l.a.sendFile(f, 0, int64(len(p))), recv)
	after := l.a.e.tr.Stats()
	if n := after.Sent - before.Sent; n != uint64(len(p)+1000) {
		r.Fatalf("Sent grew by %d", n)
	}
	if n := after.FileSent - before.FileSent; n > uint64(len(p)) {
		r.Fatalf("FileSent grew by %d for a file of %d bytes", n, len(p))
	}
}

func fileClosedAfterwards(r *rig) {
	l := r.link()
	f, want := r.file(1, 50_000)
	send := l.a.sendFile(f, 0, int64(len(want)))
	r.done(send)
	r.must("SendFile", send.err)
	r.must("Close of the file", f.Close())
	r.must("Remove", os.Remove(f.Name()))
	recv := l.b.recv(len(want))
	r.done(recv)
	r.same("the file", recv.data, want)
}
