import json,random,sys,os
folder,rows,stuck=sys.argv[1],int(sys.argv[2]),sys.argv[3:]
os.makedirs(folder,exist_ok=True); random.seed(5)
for r in range(3):
    with open(f"{folder}/shard_{r:03d}.jsonl","w") as f:
        for i in range(rows):
            row={"x":[round(random.gauss(0,1),3) for _ in range(16)],"y":random.randrange(10)}
            if stuck and r==1 and i==int(stuck[0]): row={"at":stuck[1]}
            f.write(json.dumps(row)+"\n")
