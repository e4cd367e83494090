//! Batches that met another transaction.

use acetate::delta::Store;

use super::{Kept, assert_alike, make_files, names};

#[test]
fn every_statement_that_has_to_be_retried_is_kept_once() {
    let kept = Kept::new();
    let (schema, id, seq) = (kept.database.schema(), kept.row.id, kept.row.mark.seq);
    // A sequence keeps its value when a statement fails.
    kept.database.run(&format!(
        "CREATE SEQUENCE {schema}.tries{id};
         CREATE FUNCTION {schema}.retry{id}() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
           IF nextval('{schema}.tries{id}') % 3 <> 0 THEN
             RAISE EXCEPTION 'again' USING ERRCODE = '40001';
           END IF;
           RETURN NEW;
         END $$;
         CREATE TRIGGER retry{id} BEFORE INSERT ON {schema}.fs_dentry FOR EACH ROW
           WHEN (NEW.session = {id}) EXECUTE FUNCTION {schema}.retry{id}()"
    ));
    let mut writer = kept.store.writer().unwrap();
    let made: Vec<_> = (0..12).map(|number| format!("f{number:02}")).collect();
    for name in &made {
        make_files(&mut *writer, &[name]).unwrap();
    }
    let tries: i64 = kept.database.with(|client, runtime| {
        let text = format!("SELECT last_value FROM {schema}.tries{id}");
        runtime.block_on(client.query_one(&text, &[])).unwrap().get(0)
    });
    assert_eq!(tries, 36, "each was refused twice");
    assert_eq!(names(&kept.rows()), made);
    assert_eq!(kept.row().mark.seq, seq + 12);
    assert_alike(&kept.ours(), &kept.rows());
    kept.database.run(&format!("DROP TRIGGER retry{id} ON {schema}.fs_dentry"));
}
