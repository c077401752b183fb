package localstack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Erase deletes what servers have kept in dir, and nothing else in it, so that the next ones begin with nothing. While
// one of them runs it deletes nothing and says so.
func Erase(dir string) (err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("find folder %s: %w", dir, err)
	}
	as, err := postgresUser()
	if err != nil {
		return err
	}
	places := []string{filepath.Join(dir, "postgres"), filepath.Join(dir, "temporal")}
	if as != nil {
		places = append(places, filepath.Join(replacementDir(dir), "postgres"))
	}
	var kept []string
	for _, path := range places {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		lock, err := tryLock(filepath.Join(path, "lock"))
		if err != nil {
			return err
		}
		if lock == nil {
			return fmt.Errorf("%s is %w: stop that one before deleting its data", path, ErrInUse)
		}
		defer func() { err = errors.Join(err, lock.Close()) }()
		kept = append(kept, path)
	}
	for _, path := range kept {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("delete the data in %s: %w", path, err)
		}
	}
	return nil
}
