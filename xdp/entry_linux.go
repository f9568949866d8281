package xdp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Entry is an interface's program. Its methods are for one goroutine at a time.
type Entry struct {
	cfg     Config
	objects entryObjects
	link    link.Link
	mode    Mode
	adopted bool // the stages were pinned
}

// names in PinPath.
const (
	pinnedLink   = "link"
	pinnedStages = "stages"
)

// Attach attaches an entry without stages, which passes everything on. When PinPath has one, that is taken over with
// its stages, and its program is replaced by this version's.
//
// The error wraps ErrConfig, ErrPrivilege, or what the kernel said: EBUSY or EEXIST means that another program is
// attached to the interface, EOPNOTSUPP that its driver has no native mode, ERANGE that its MTU is too large for
// that.
func Attach(cfg Config) (*Entry, error) {
	if cfg.Interface <= 0 || cfg.Mode < Native || cfg.Mode > Fallback {
		return nil, fmt.Errorf("xdp: attach to interface %d in mode %v: %w", cfg.Interface, cfg.Mode, ErrConfig)
	}
	if err := Check(); err != nil {
		return nil, err
	}
	e := &Entry{cfg: cfg}
	if err := e.load(); err != nil {
		return nil, err
	}
	if err := e.attach(); err != nil {
		_ = e.objects.Close() // the first error is what matters
		return nil, err
	}
	return e, nil
}

// load makes the program, on the pinned stages where there are some.
func (e *Entry) load() error {
	opts := ebpf.CollectionOptions{}
	if path := e.pin(pinnedStages); path != "" {
		switch pinned, err := ebpf.LoadPinnedMap(path, nil); {
		case err == nil:
			defer pinned.Close()
			opts.MapReplacements = map[string]*ebpf.Map{"stages": pinned}
			e.adopted = true
		case !errors.Is(err, os.ErrNotExist):
			return fmt.Errorf("xdp: stages pinned at %s: %w", path, err)
		}
	}
	if err := loadEntryObjects(&e.objects, &opts); err != nil {
		return fmt.Errorf("xdp: load the entry: %w", err)
	}
	return nil
}

// attach takes over the pinned link, or attaches and pins a new one.
func (e *Entry) attach() error {
	if e.cfg.PinPath != "" {
		if done, err := e.takeOver(); done || err != nil {
			return err
		}
	}
	l, mode, err := attachTo(e.objects.Entry, e.cfg)
	if err != nil {
		return err
	}
	e.link, e.mode = l, mode
	if e.cfg.PinPath == "" {
		return nil
	}
	// Stages first: a link that is found has its stages beside it.
	if !e.adopted {
		if err := e.objects.Stages.Pin(e.pin(pinnedStages)); err != nil {
			_ = l.Close()
			return fmt.Errorf("xdp: pin the stages in %s: %w", e.cfg.PinPath, err)
		}
	}
	if err := l.Pin(e.pin(pinnedLink)); err != nil {
		_ = e.objects.Stages.Unpin()
		_ = l.Close()
		return fmt.Errorf("xdp: pin the link in %s: %w", e.cfg.PinPath, err)
	}
	return nil
}

// takeOver puts this program in the place of the one that a pinned link has, and reports whether there was one. A link
// whose interface is gone is removed.
func (e *Entry) takeOver() (bool, error) {
	l, err := link.LoadPinnedLink(e.pin(pinnedLink), nil)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("xdp: link pinned in %s: %w", e.cfg.PinPath, err)
	}
	index, err := indexOf(l)
	switch {
	case err != nil:
	case index == 0:
		if err := errors.Join(l.Unpin(), l.Close()); err != nil {
			return false, fmt.Errorf("xdp: remove the link in %s, whose interface is gone: %w", e.cfg.PinPath, err)
		}
		return false, nil
	case index != e.cfg.Interface:
		err = fmt.Errorf("it is of interface %d, not %d: %w", index, e.cfg.Interface, ErrConfig)
	default:
		err = l.Update(e.objects.Entry)
	}
	if err != nil {
		_ = l.Close()
		return false, fmt.Errorf("xdp: take over the link in %s: %w", e.cfg.PinPath, err)
	}
	e.link, e.mode = l, Native
	if attached, err := netlink.LinkByIndex(index); err == nil && attached.Attrs().Xdp != nil &&
		attached.Attrs().Xdp.AttachMode == nl.XDP_ATTACHED_SKB {
		e.mode = Generic
	}
	return true, nil
}

// indexOf returns the interface that a link is of: 0 when that is gone.
func indexOf(l link.Link) (int, error) {
	info, err := l.Info()
	if err != nil {
		return 0, err
	}
	if info.XDP() == nil {
		return 0, fmt.Errorf("a link of type %v: %w", info.Type, ErrConfig)
	}
	return int(info.XDP().Ifindex), nil
}

// attachTo attaches in the configured mode and returns the one that it became.
func attachTo(program *ebpf.Program, cfg Config) (link.Link, Mode, error) {
	modes := []Mode{cfg.Mode}
	if cfg.Mode == Fallback {
		modes = []Mode{Native, Generic}
	}
	var first error
	for _, mode := range modes {
		flags := link.XDPDriverMode
		if mode == Generic {
			flags = link.XDPGenericMode
		}
		l, err := link.AttachXDP(link.XDPOptions{Program: program, Interface: cfg.Interface, Flags: flags})
		if err == nil {
			return l, mode, nil
		}
		if first == nil {
			first = err
		}
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
			break // what is there already has a mode of its own
		}
	}
	return nil, 0, fmt.Errorf("xdp: attach to interface %d in mode %v: %w", cfg.Interface, cfg.Mode, first)
}

// pin is the path of what is pinned under a name, or empty.
func (e *Entry) pin(name string) string {
	if e.cfg.PinPath == "" {
		return ""
	}
	return filepath.Join(e.cfg.PinPath, name)
}

// Mode is Native or Generic: what Fallback has become, or what an entry that was taken over has had.
func (e *Entry) Mode() Mode { return e.mode }

// Stages is the map that programs which are to become stages are loaded with, under the name "stages". It is the
// Entry's: the caller does not close it.
func (e *Entry) Stages() *ebpf.Map { return e.objects.Stages }

// Program is the entry's program, for measurements. It is the Entry's.
func (e *Entry) Program() *ebpf.Program { return e.objects.Entry }

// Set makes program a stage, in place of the one that was there: every packet sees either. The kernel keeps it until
// Clear, or until the Entry ends.
func (e *Entry) Set(stage Stage, program *ebpf.Program) error {
	if stage >= stages || program == nil {
		return fmt.Errorf("xdp: set stage %v to %v: %w", stage, program, ErrConfig)
	}
	if err := e.objects.Stages.Put(uint32(stage), program); err != nil {
		return fmt.Errorf("xdp: set stage %v: %w", stage, err)
	}
	return nil
}

// Clear takes a stage out, if it is there.
func (e *Entry) Clear(stage Stage) error {
	err := e.objects.Stages.Delete(uint32(stage))
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("xdp: clear stage %v: %w", stage, err)
	}
	return nil
}

// Close gives the Entry up. What is pinned stays attached; without a PinPath the interface has no program afterwards.
func (e *Entry) Close() error { return errors.Join(e.link.Close(), e.objects.Close()) }

// Detach is Close, and removes what is pinned: the interface has no program afterwards.
func (e *Entry) Detach() error {
	var unpinned error
	if e.cfg.PinPath != "" {
		unpinned = errors.Join(e.link.Unpin(), os.Remove(e.pin(pinnedStages)))
	}
	return errors.Join(unpinned, e.Close())
}
